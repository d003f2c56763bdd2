"""The pages of taggers and reviewers in a real browser: what is chosen there is in the journals, and the next run uses it."""

import threading
import time
from contextlib import contextmanager

import pytest

from curation.gmai import checks, pipeline, tags
from curation.gmai.questions import CANDIDATES
from dataset_builders.errors import BadInput
from dataset_builders.journal import read_journal
from tests.curation.gmai.phantoms import write_all
from tests.curation.model_server import model_server
from tests.processes import free_port


@contextmanager
def served(app):
    import uvicorn

    port = free_port()
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20)


def until(what, seconds=60):
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.1)
    assert what()


@pytest.mark.browser
def test_tags_and_verdicts_of_the_pages_are_in_the_journals(tmp_path, chromium):
    from curation.gmai.pages import build_tagging, build_validation

    path = write_all(tmp_path, only={"coco"})
    out = tmp_path / "set"
    with pytest.raises(BadInput, match="holds no questions"):
        build_validation(out)
    first = pipeline.run(path, out)
    with pytest.raises(BadInput, match="three people"):
        build_tagging(out, ["Ada", "Bo"])
    log, votes = out / "private" / checks.LOG, out / "private" / tags.LOG
    with served(build_validation(out)) as address:
        page = chromium.new_page()
        page.goto(address)
        page.wait_for_selector("#save")
        page.wait_for_function("document.querySelector('.shown img')?.naturalWidth > 0")
        page.click("#save")
        page.get_by_text("NOT saved").wait_for()
        page.locator("#reviewer input, #reviewer textarea").fill("Ada")
        page.locator("#faults input").nth(1).check()
        page.click("#save")
        until(lambda: read_journal(log))
        page.get_by_text(f"Ada: 1 of {len(first.written)} questions").wait_for()
        page.click("#save")
        until(lambda: len(read_journal(log)) == 2)
    verdicts = [(entry["reviewer"], entry["case"], entry["faults"]) for entry in read_journal(log)]
    assert verdicts == [("Ada", first.written[0].case.case, ["unclear"]), ("Ada", first.written[1].case.case, [])]
    with served(build_tagging(out, ["Ada", "Bo", "Cy"])) as address:
        page = chromium.new_page()
        page.goto(address)
        page.click("#tagger input")
        page.get_by_role("option", name="Bo").click()
        page.get_by_text("Bo: 0 of 4 labels").wait_for()
        page.get_by_label("Muscle").check()
        until(lambda: read_journal(votes))
        page.get_by_label("Urology").check()
        page.get_by_text("Bo: 1 of 4 labels").wait_for()
    label = read_journal(votes)[0]["label"]
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
