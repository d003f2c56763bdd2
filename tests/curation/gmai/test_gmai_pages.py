"""The pages of taggers and reviewers: what is chosen there is in the journals, and the next run uses it."""

import re

import pytest
from fastapi.testclient import TestClient

from curation.gmai import checks, pipeline, tags
from curation.gmai.pages import build_tagging, build_validation
from curation.gmai.questions import CANDIDATES
from dataset_builders.errors import BadInput
from dataset_builders.journal import read_journal
from tests.curation.gmai.phantoms import write_all
from tests.curation.model_server import model_server


def test_tags_and_verdicts_of_the_pages_are_in_the_journals(tmp_path):
    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with pytest.raises(BadInput, match="holds no questions"):
        build_validation(out)
    first = pipeline.run(path, out)
    with pytest.raises(BadInput, match="three people"):
        build_tagging(out, ["Ada", "Bo"])
    log, votes = out / "private" / checks.LOG, out / "private" / tags.LOG
    one, two = (each.case.case for each in first.written[:2])
    page = TestClient(build_validation(out))
    assert page.get(re.search(r'src="(picture/[^"]+)"', page.get("/?reviewer=Ada").text)[1]).content.startswith(
        b"\x89PNG"
    )
    refused = page.post("/save", data={"item": one, "fault": "unclear"})
    assert refused.status_code == 409 and "NOT saved" in refused.text and not read_journal(log)
    shown = page.post("/save", data={"reviewer": "Ada", "item": one, "fault": "unclear"}).text
    assert f"1 of {len(first.written)} done" in shown and f'value="{two}"' in shown
    page.post("/save", data={"reviewer": "Ada", "item": two})
    assert page.post("/save", data={"reviewer": "Ada", "item": "none"}).status_code == 409
    verdicts = [(entry["reviewer"], entry["case"], entry["faults"]) for entry in read_journal(log)]
    assert verdicts == [("Ada", one, ["unclear"]), ("Ada", two, [])]
    assert "checked" in page.get(f"/?reviewer=Ada&item={one}").text
    page = TestClient(build_tagging(out, ["Ada", "Bo", "Cy"]))
    shown = page.get("/?reviewer=Bo").text
    assert "0 of 4 done" in shown
    label = re.search(r'name="item" value="([^"]+)"', shown)[1]
    for wrong in ({"reviewer": "Eve", "task": "Muscle"}, {"reviewer": "Bo", "task": "Cooking"}, {"task": "Muscle"}):
        assert page.post("/save", data=wrong | {"item": label}).status_code == 409
    shown = page.post("/save", data={"reviewer": "Bo", "item": label, "task": "Muscle", "department": "Urology"}).text
    assert "1 of 4 done" in shown and [vote["tagger"] for vote in read_journal(votes)] == ["Bo", "Bo"]
    for tagger in ("Ada", "Cy"):
        tags.vote(out / "private", tagger, label, "task", "Muscle")
        tags.vote(out / "private", tagger, label, "department", "Urology")
    second = pipeline.run(path, out)
    assert first.written[0].case.case not in {w.case.case for w in second.written}
    assert all(w.case.task != "Muscle" or w.case.answers == (label,) for w in second.written)
    assert label not in {a for w in second.written if w.case.task != "Muscle" for a in w.case.answers}
    assert second.funnel["tags"]["labels_with_fewer_than_three"] == 0


def test_a_model_proposes_questions_the_rules_filter_them_and_a_person_decides(tmp_path):
    from curation.commands.questions import open_writer
    from curation.writing.asking import Asking

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
            made = pipeline.run(path, out, open_writer("m", address), Asking())
        asked = len(log.asked)
    assert asked == made.funnel["model_questions"]["asked"]  # the second run pays nothing
    assert made.funnel["model_questions"]["against the rules"] > made.funnel["model_questions"]["to review"] == 1
    assert not any(good == w.question for w in made.written)
    candidates = out / "private" / CANDIDATES
    template = good.replace("CT", "<modality>")
    assert template in candidates.read_text()
    candidates.write_text(candidates.read_text().replace(f"{template},", f"{template},yes"))
    kept = pipeline.run(path, out)
    masks = [w for w in kept.written if w.case.granularity == "Mask Level"]
    assert masks
    assert {w.question for w in masks} == {good}
