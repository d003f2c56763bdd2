"""Pages of taggers and reviewers: choices are journalled, and the next run uses them."""

import pytest
from fastapi.testclient import TestClient

from curation.gmai import pipeline, validation
from curation.gmai.label_table import TAGS_FILE
from curation.gmai.question_templates import CANDIDATES_FILE
from curation.gmai.validation import build_tagging, build_validation
from dataset_builders.browser_page.page import record_decision
from dataset_builders.errors import BadInput
from dataset_builders.files import read_journal
from tests.curation.gmai.phantoms import write_all
from tests.curation.model_server import model_server


def test_pages_journal_tags_and_verdicts_for_the_next_run(tmp_path):
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with pytest.raises(BadInput, match="has no questions"):
        build_validation(out)
    first_run = pipeline.run_pipeline(path, out)
    with pytest.raises(BadInput, match="three people"):
        build_tagging(out, ["Ada", "Bo"])
    verdict_log, votes = out / "private" / validation.VALIDATION_LOG, out / "private" / TAGS_FILE
    first_case, second_case = (question.case.case for question in first_run.written[:2])
    page = TestClient(build_validation(out))
    assert page.get("/picture/0", params={"item": first_case}).content.startswith(b"\x89PNG")
    assert page.get("/picture/9", params={"item": first_case}).status_code == 404

    def post_decision(item, field, value, **by):
        return page.post("/save", json={"item": item, "field": field, "value": value} | by).json()

    # Without a name, nothing is recorded.
    assert "error" in post_decision(first_case, "faults", ["unclear"]) and not verdict_log.is_file()
    response = post_decision(first_case, "faults", ["unclear"], reviewer="Ada")
    assert (response["done"], response["items"]) == (1, len(first_run.written))
    post_decision(second_case, "faults", [], reviewer="Ada")
    assert "error" in post_decision("none", "faults", [], reviewer="Ada")
    verdicts = [(entry["reviewer"], entry["item"], entry["value"]) for entry in read_journal(verdict_log)]
    assert verdicts == [("Ada", first_case, ["unclear"]), ("Ada", second_case, [])]
    assert page.get("/item", params={"reviewer": "Ada", "item": first_case}).json()["values"] == {"faults": ["unclear"]}
    second_run = pipeline.run_pipeline(path, out)
    old_questions, new_questions = (
        {w.case.case: (w.question, w.choice) for w in question.written} for question in (first_run, second_run)
    )
    # A fault removes the question; a verdict without faults changes nothing.
    assert first_case not in new_questions and second_run.funnel["validation"]["dropped"] == {"unclear": 1}
    assert all(new_questions[case] == old_questions[case] for case in new_questions.keys() & old_questions.keys())
    page = TestClient(build_tagging(out, ["Ada", "Bo", "Cy"]))
    response = page.get("/item", params={"reviewer": "Bo"}).json()
    label = response["item"]
    assert (response["done"], response["items"]) == (0, 4)
    # An unknown tagger, an unknown task, and a vote without a name.
    for invalid_fields in ({"reviewer": "Eve"}, {"reviewer": "Bo", "value": "Cooking"}, {}):
        assert "error" in post_decision(**({"item": label, "field": "task", "value": "Muscle"} | invalid_fields))
    post_decision(label, "task", "Muscle", reviewer="Bo")
    assert post_decision(label, "department", "Urology", reviewer="Bo")["done"] == 1
    # Three votes are needed before tags count.
    for tagger in ("Ada", "Cy"):
        record_decision(votes, tagger, label, "task", "Muscle")
        record_decision(votes, tagger, label, "department", "Urology")
    third_run = pipeline.run_pipeline(path, out)
    assert all(w.case.task != "Muscle" or w.case.answers == (label,) for w in third_run.written)
    assert label not in {a for w in third_run.written if w.case.task != "Muscle" for a in w.case.answers}


def test_model_templates_are_filtered_by_rules_and_used_after_review(tmp_path):
    from curation.commands.pair_questions import open_language_model

    valid_question = "Which abdominal organ is in the tinted area on this CT image?"
    reply_lines = [
        valid_question,
        "1. Is the liver in the box on this CT image the abdominal organ?",
        "- What is this?",
        "Which organ is boxed on this scan?",
    ]
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with model_server(lambda prompt, earlier_prompts: "\n".join(reply_lines)) as (address, log):
        # Replies are journalled, so the second run must not repeat any request.
        for _ in range(2):
            result = pipeline.run_pipeline(path, out, *open_language_model("m", address, False))
        request_count = len(log.requests)
    assert request_count == result.funnel["model_questions"]["asked"]  # the second run makes no requests
    assert result.funnel["model_questions"]["against the rules"] > result.funnel["model_questions"]["to review"] == 1
    # A model's question is not used until a person has accepted it.
    assert not any(valid_question == w.question for w in result.written)
    candidates = out / "private" / CANDIDATES_FILE
    template = valid_question.replace("CT", "<modality>")
    assert template in candidates.read_text()
    candidates.write_text(candidates.read_text().replace(f"{template},", f"{template},yes"))
    final_result = pipeline.run_pipeline(path, out)
    masks = [w for w in final_result.written if w.case.granularity == "Mask Level"]
    assert masks
    assert {w.question for w in masks} == {valid_question}
