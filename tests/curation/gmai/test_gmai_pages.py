"""The pages of taggers and reviewers: what is chosen there is in the journals, and the next run uses it."""

import pytest
from fastapi.testclient import TestClient

from curation.gmai import pipeline, validation
from curation.gmai.label_table import TAGS_FILE
from curation.gmai.question_templates import CANDIDATES_FILE
from curation.gmai.validation import build_tagging, build_validation
from curation.review.page import record_decision
from dataset_builders.errors import BadInput
from dataset_builders.journal import read_journal
from tests.curation.gmai.phantoms import write_all
from tests.curation.model_server import model_server


def test_tags_and_verdicts_of_the_pages_are_in_the_journals(tmp_path):
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with pytest.raises(BadInput, match="has no questions"):
        build_validation(out)
    first = pipeline.run_pipeline(path, out)
    with pytest.raises(BadInput, match="three people"):
        build_tagging(out, ["Ada", "Bo"])
    log, votes = out / "private" / validation.VALIDATION_LOG, out / "private" / TAGS_FILE
    one, two = (each.case.case for each in first.written[:2])
    page = TestClient(build_validation(out))
    assert page.get("/picture/0", params={"item": one}).content.startswith(b"\x89PNG")
    assert page.get("/picture/9", params={"item": one}).status_code == 404

    def give(item, field, value, **by):
        return page.post("/save", json={"item": item, "field": field, "value": value} | by).json()

    assert "error" in give(one, "faults", ["unclear"]) and not log.is_file()
    shown = give(one, "faults", ["unclear"], reviewer="Ada")
    assert (shown["done"], shown["items"]) == (1, len(first.written))
    give(two, "faults", [], reviewer="Ada")
    assert "error" in give("none", "faults", [], reviewer="Ada")
    verdicts = [(entry["reviewer"], entry["item"], entry["value"]) for entry in read_journal(log)]
    assert verdicts == [("Ada", one, ["unclear"]), ("Ada", two, [])]
    assert page.get("/item", params={"reviewer": "Ada", "item": one}).json()["values"] == {"faults": ["unclear"]}
    made = pipeline.run_pipeline(path, out)
    before, after = ({w.case.case: (w.question, w.choice) for w in each.written} for each in (first, made))
    assert one not in after and made.funnel["validation"]["dropped"] == {"unclear": 1}
    assert all(after[case] == before[case] for case in after.keys() & before.keys())
    page = TestClient(build_tagging(out, ["Ada", "Bo", "Cy"]))
    shown = page.get("/item", params={"reviewer": "Bo"}).json()
    label = shown["item"]
    assert (shown["done"], shown["items"]) == (0, 4)
    for wrong in ({"reviewer": "Eve"}, {"reviewer": "Bo", "value": "Cooking"}, {}):
        assert "error" in give(**({"item": label, "field": "task", "value": "Muscle"} | wrong))
    give(label, "task", "Muscle", reviewer="Bo")
    assert give(label, "department", "Urology", reviewer="Bo")["done"] == 1
    for tagger in ("Ada", "Cy"):
        record_decision(votes, tagger, label, "task", "Muscle")
        record_decision(votes, tagger, label, "department", "Urology")
    second = pipeline.run_pipeline(path, out)
    assert all(w.case.task != "Muscle" or w.case.answers == (label,) for w in second.written)
    assert label not in {a for w in second.written if w.case.task != "Muscle" for a in w.case.answers}


def test_a_model_proposes_questions_the_rules_filter_them_and_a_person_decides(tmp_path):
    from curation.commands.pair_questions import open_language_model
    from curation.writing.asking import AskSettings

    good = "Which abdominal organ is in the tinted area on this CT image?"
    said = [
        good,
        "1. Is the liver in the box on this CT image the abdominal organ?",
        "- What is this?",
        "Which organ is boxed on this scan?",
    ]
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with model_server(lambda prompt, before: "\n".join(said)) as (address, log):
        for _ in range(2):
            made = pipeline.run_pipeline(path, out, open_language_model("m", address), AskSettings())
        asked = len(log.requests)
    assert asked == made.funnel["model_questions"]["asked"]  # the second run pays nothing
    assert made.funnel["model_questions"]["against the rules"] > made.funnel["model_questions"]["to review"] == 1
    assert not any(good == w.question for w in made.written)
    candidates = out / "private" / CANDIDATES_FILE
    template = good.replace("CT", "<modality>")
    assert template in candidates.read_text()
    candidates.write_text(candidates.read_text().replace(f"{template},", f"{template},yes"))
    kept = pipeline.run_pipeline(path, out)
    masks = [w for w in kept.written if w.case.granularity == "Mask Level"]
    assert masks
    assert {w.question for w in masks} == {good}
