"""Test the review page: what it calls saved is journaled, and a link admits only its reviewer."""

import io
import json
import random
import socket
import time

import httpx
import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from playwright.sync_api import expect

from curation.review.review import (
    CATEGORY_FIELDS,
    CHECK_FIELDS,
    SCORE_FIELDS,
    TEXT_FIELDS,
    ReviewLog,
    build_review,
    format_agreement,
)
from curation.writing.question_writing import DRAFTS_FILE, REVIEWS_FILE
from dataset_builders.browser_page.page import (
    REVIEWERS_FILE,
    Field,
    ItemView,
    ReviewAccess,
    ReviewTask,
    build_page,
    encode_for_browser,
    read_decisions,
    record_decision,
    serve_page,
)
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder
from tests import processes
from tests.browser import eventually, fits
from tests.helpers import refused
from tests.sampling import few

SERVER_SCRIPT = (
    "import sys; from pathlib import Path; from curation.review.review import build_review; "
    "from dataset_builders.browser_page.page import serve_page; q, i = map(Path, sys.argv[1:3]); "
    "serve_page(lambda access: build_review(q, i, access), q, 'review', 'reviewing', "
    "int(sys.argv[3]))"
)
HOSTILE_TEXT = '</script><img src=x onerror="window.hacked=1">${window.hacked=1}'


@pytest.fixture
def folders(tmp_path):
    questions, images = tmp_path / "questions", tmp_path / "images"
    questions.mkdir()
    images.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(rng.integers(0, 256, (300, 500), dtype=np.uint8)).save(images / name)
    Image.fromarray(rng.integers(0, 60000, (90, 70), dtype=np.uint16)).save(images / "d.tif")
    rows = [
        {
            "pair_id": f"{k}-{k + 1}", "i": k, "j": k + 1, "sim_med": 0.95, "sim_gen": 0.4, "image_1": image_1, "image_2": image_2,
            "caption_1": f"caption one of {k} {HOSTILE_TEXT}", "caption_2": f"caption two of {k}", "question": f"Which side, {k}?",
            "option_A": "left", "option_B": "right", "correct_1": "A", "correct_2": "B",
        }
        for k, (image_1, image_2) in enumerate([("a.png", "b.png"), ("b.png", "c.png"), ("c.png", "d.tif")])
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(questions / DRAFTS_FILE)
    return questions, images


@pytest.mark.parametrize("seed", few(range(2)))
def test_saved_changes_are_journaled_and_no_text_is_overwritten_unread(seed, folders):
    questions, images = folders
    rng = random.Random(seed)
    client = TestClient(build_review(questions, images))
    shown_values, saved_values, refused, journal = {}, {}, 0, questions / REVIEWS_FILE

    def on_disk():
        return journal.read_bytes() if journal.exists() else b""

    def drawn(field):
        if field in SCORE_FIELDS:
            return rng.choice(["1", "4", "5", "10", "11", "0", 5.5])
        if field in CHECK_FIELDS:
            return rng.choice(["yes", "no", None, True])
        return (
            rng.choice(["left", "right", "", "Liver \ud83d", "a\u2028b"])
            if field not in CATEGORY_FIELDS
            else ["Pulmonary", "own"]
        )

    for _ in range(150):
        reviewer, item, field = (
            rng.choice(["Ada", "Bo", " "]),
            rng.choice(["0-1", "1-2"]),
            rng.choice([*SCORE_FIELDS, *CHECK_FIELDS, *TEXT_FIELDS, *CATEGORY_FIELDS, "note", "sim_med"]),
        )
        page = (reviewer, item)
        # Several pages are open at once; one that is not reloaded shows outdated values.
        if page not in shown_values or rng.random() < 0.3:  # otherwise the page may be outdated
            shown_values[page] = client.get("/item", params={"reviewer": reviewer, "item": item}).json()["values"]
        request = {
            "reviewer": reviewer,
            "item": item,
            "field": field,
            "value": drawn(field),
            "seen": shown_values[page].get(field),
        }
        last_saved, journal_bytes = saved_values.get((item, field), shown_values[page].get(field)), on_disk()
        response = client.post(
            "/save", content=json.dumps(request), headers={"content-type": "application/json"}
        ).json()
        if "error" in response:
            refused += 1
            # A refused change must leave the journal as it was.
            assert journal_bytes == on_disk()
            continue
        # The journal only grows, and the mined values cannot be edited.
        assert field != "sim_med" and on_disk().startswith(journal_bytes)
        # A reviewer without a name can save nothing.
        assert reviewer != " " or response["said"].startswith("nothing changed")
        if response["said"].startswith("saved"):
            if field in (*TEXT_FIELDS, *CATEGORY_FIELDS):
                assert shown_values[page][field] == last_saved, "a text that changed meanwhile was set back unread"
                saved_values[item, field] = response["values"][field]
            shown_values[page][field] = response["values"][field]
    assert refused
    restarted_log = ReviewLog(questions)  # as a restarted server reads it
    for reviewer in ("Ada", "Bo"):
        for item in ("0-1", "1-2"):
            current = client.get("/item", params={"reviewer": reviewer, "item": item}).json()["values"]
            assert current == {field: restarted_log.value(reviewer, item, field) for field in current}
            # The two options must differ and not be empty.
            assert len({current["option_A"].casefold(), current["option_B"].casefold(), ""}) == 3


PAGE_FIELDS = [
    Field("pick", "Pick one", "choice", [(str(k), f"a rather long choice number {k}") for k in range(12)], "1234"),
    Field("faults", "What is wrong?", "checks", [("x", "wrong"), ("y", "poor")], "xy", commit="save and go on"),
    Field("fine", "fine", "choice", [("yes", "yes"), ("no", "no")], "fF"),
    Field("words", "words", "text", keys="e"),
    Field("tags", "tags", "list", [("Lung", "Lung")]),
]


def make_task(log, pictures, names=()):
    """Make a review task whose decisions are written to `log` and whose pictures are grey."""
    decisions = read_decisions(log) if log.is_file() else {}

    def save(reviewer, item, field, value, seen):
        record_decision(log, reviewer, item, field, value)
        decisions[item, field, reviewer] = value
        return "saved"

    def picture(item, number):
        buffer = io.BytesIO()
        Image.new("L", (800, 600), 90).save(buffer, "PNG")
        return encode_for_browser(buffer.getvalue())

    def show(reviewer, item):
        values = {field.name: decisions.get((item, field.name, reviewer)) for field in PAGE_FIELDS}
        question = f"What does {item} show, where the lung's upper lobe and its fissure are marked? {HOSTILE_TEXT}"
        return ItemView(
            question, values, "chest › CT", [("a nodule", True), ("a mass", False)], [""] * pictures, "more"
        )

    return ReviewTask(
        "Some task",
        PAGE_FIELDS,
        lambda _: ["one", "two"],
        show,
        save,
        lambda reviewer, item: (item, "faults", reviewer) in decisions,
        picture,
        names,
    )


@pytest.mark.browser
@pytest.mark.parametrize("pictures", few([2, 0, 1]))
def test_the_question_is_in_view_and_every_key_works(pictures, tmp_path, chromium):
    log = tmp_path / "log.jsonl"
    with processes.served(build_page(make_task(log, pictures, ("Ada", "Bo") if pictures else ()))) as address:
        # A desktop screen, a laptop in dark mode and a phone.
        for width, height, scheme in ((1400, 1000, "light"), (1440, 900, "dark"), (390, 844, "light")):
            page = chromium.new_page(width, height, scheme)
            page.goto(address)
            page.wait_for_selector("#question:not(:empty)")
            box = page.locator("#question").bounding_box()
            assert box["y"] >= 0 and box["y"] + box["height"] < height / 2
            fits(page, width)
        if pictures:
            page.select_option("#reviewer", "Ada")
        else:
            page.fill("#reviewer", "Ada")
            page.locator("#reviewer").blur()
        # `x` is pressed twice, so it is unchecked again; Enter saves and goes to the next item.
        for key in ("3", "f", "x", "y", "x", "Enter"):
            page.keyboard.press(key)
        expect(page.locator("#question")).to_contain_text("two")
        page.keyboard.press("p")
        expect(page.locator("#field-faults [aria-pressed=true]")).to_have_text("poor y")
        page.keyboard.press("e")
        # Inside a text field, these keys are text and not shortcuts.
        page.keyboard.type("ftxp")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Lung").click()
        eventually(lambda: len(read_decisions(log)), 5)
        # The hostile text would set it if the page interpreted it as HTML.
        assert page.evaluate("window.hacked") is None and not chromium.script_errors
    assert read_decisions(log) == {
        ("one", "pick", "Ada"): "2", ("one", "fine", "Ada"): "yes", ("one", "faults", "Ada"): ["y"], ("one", "words", "Ada"): "ftxp",
        ("one", "tags", "Ada"): ["Lung"],
    }  # fmt: skip


def start_server(folders):
    port = processes.free_port()
    process = processes.start(SERVER_SCRIPT, *folders, port, cwd=folders[0].parent)
    for _ in range(1500):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, f"http://127.0.0.1:{port}/"
        except OSError:
            assert process.poll() is None, process.output_file.read_text()
            time.sleep(0.05)
    raise AssertionError("the server did not start")


@pytest.mark.browser
def test_a_review_survives_a_killed_server_and_unsent_changes_are_marked(chromium, folders):
    questions, _ = folders
    process, address = start_server(folders)
    try:
        page = chromium.new_page()
        page.goto(address)
        page.fill("#reviewer", "Ada")
        page.locator("#reviewer").blur()
        page.wait_for_selector("#progress:has-text('Ada decided')")
        widths = "[...document.querySelectorAll('.picture img')].map((i) => i.naturalWidth).join()"
        page.wait_for_function(f"{widths} === '500,500'")
        # At first, the page shows no caption.
        assert "caption one" not in page.locator("main").inner_text()
        for key in ("8", "Shift+Digit0", "x", "l", "v", "d"):
            page.keyboard.press(key)
        page.wait_for_selector("#progress:has-text('Ada decided 1 of 3')")
        assert HOSTILE_TEXT in page.locator("#told").inner_text()
        page.keyboard.press("a")
        page.keyboard.type("upwards")
        page.keyboard.press("Escape")
        expect(page.locator(".side .note").first).to_have_text("Right here: A: upwards")
        image = page.locator(".picture img").first
        initial_width = image.bounding_box()["width"]
        page.locator(".picture").first.hover()
        page.mouse.wheel(0, -400)
        page.wait_for_function(
            f"document.querySelector('.picture img').getBoundingClientRect().width > 2 * {initial_width}"
        )
        page.keyboard.press("]")
        assert "contrast(110%)" in image.evaluate("(node) => node.style.filter")
        page.keyboard.press("r")
        assert image.bounding_box()["width"] == pytest.approx(initial_width, rel=0.01)
        page.keyboard.press("e")
        # Bo changes the same question while Ada is typing.
        page.keyboard.type("typed over what Bo changes meanwhile")
        decision = {
            "reviewer": "Bo",
            "item": "0-1",
            "field": "question",
            "value": "Which lung?",
            "seen": "Which side, 0?",
        }
        assert "saved" in httpx.post(address + "save", json=decision).json()["said"]
        page.click(
            "#field-categories_1 button >> nth=0", delay=500
        )  # a refusal meanwhile must not move the button under the pointer
        page.wait_for_selector("#said:has-text('saved 0-1 categories')")
        expect(page.locator("#field-question .bad")).to_contain_text("NOT saved: Bo changed question")
        expect(page.locator("#field-question textarea")).to_have_value("typed over what Bo changes meanwhile")
        assert ReviewLog(questions).pairs["0-1"].question == "Which lung?"
        page.keyboard.press("o")
        expect(page.locator("#question")).to_have_text("Which side, 1?")
        page.keyboard.press("9")
        page.keyboard.press("3")  # at once: the second of two quick scores counts
        page.keyboard.press("n")  # its second image is a 16-bit TIFF
        page.wait_for_function(f"{widths} === '500,70'")
        assert ReviewLog(questions).pairs["1-2"].reviews["Ada"].score_1 == 3
        assert not page.locator("#lost").count()
    finally:
        # The server gets no time to write anything more.
        process.kill()
        process.wait(30)
    # The page is still open in the browser, but its server is gone.
    page.keyboard.press("8")
    page.wait_for_selector("#lost:has-text('NOT saved')")
    assert ReviewLog(questions).pairs["2-3"].reviews == {}
    restarted_log = ReviewLog(questions)  # as a restarted server reads it
    assert restarted_log.pairs["0-1"].option_A == "upwards" and restarted_log.pairs["0-1"].reviews["Ada"].score_2 == 10
    assert restarted_log.is_done("Ada", "0-1") and "No problem" in format_agreement(restarted_log)


@pytest.mark.browser
def test_each_reviewer_has_a_link_and_there_is_no_other_access(chromium, folders):
    """The name comes from the link alone, whatever a page or a request says."""
    questions, images = folders
    access = ReviewAccess(questions, ["Dr Ada", "Bo"])
    keys = json.loads((questions / REVIEWERS_FILE).read_text())
    assert keys.keys() == {"Dr Ada", "Bo"} and (questions / REVIEWERS_FILE).stat().st_mode & 0o077 == 0
    app = build_review(questions, images, access)
    access.guard(app, False)
    with processes.served(app) as address:
        for path in ("", "picture/0?item=0-1", "item", f"?key={keys['Bo'][:-1]}", "summary"):
            assert httpx.get(address + path).status_code == 401
        page = chromium.new_page()
        page.goto(f"{address}?key={keys['Bo']}")
        page.wait_for_selector("#progress:has-text('Bo decided 0 of 3')")
        # The page removes the key from the address.
        expect(page).to_have_url(address)
        expect(page.locator("#reviewer")).to_be_disabled()
        page.keyboard.press("1")
        page.wait_for_selector("#said:has-text('saved 0-1 score 1')")
        with httpx.Client(follow_redirects=True) as client:
            client.get(f"{address}?key={keys['Bo']}")
            # With Bo's link, a request under another name is saved under Bo's.
            decision = {"reviewer": "Dr Ada", "item": "0-1", "field": "score_2", "value": 4}
            assert "saved" in client.post(address + "save", json=decision).json()["said"]
    assert {json.loads(line)["reviewer"] for line in (questions / REVIEWS_FILE).read_text().splitlines()} == {"Bo"}
    ReviewAccess(questions, ["Dr Ada"])
    assert (
        json.loads((questions / REVIEWERS_FILE).read_text()) == keys
    )  # links stay valid, also of reviewers who are not named this time


def test_other_machines_need_reviewers_and_each_server_a_folder_and_port(folders):
    questions, images = folders

    def serve(port=0, **options):
        serve_page(
            lambda access: build_review(questions, images, access), questions, "review", "reviewing", port, **options
        )

    for options, message in (({"host": "0.0.0.0"}, "--reviewers"), ({"reviewers": [" "]}, "names no reviewer"),
                        ({"certificate": images / "a.png"}, "not a PEM file")):  # fmt: skip
        with pytest.raises(BadInput, match=message):
            serve(**options)
    # A second server would write to the same journal.
    with lock_folder(questions, "review"), pytest.raises(BadInput, match="another process"):
        serve()
    with socket.socket() as used_port:
        used_port.bind(("127.0.0.1", 0))
        used_port.listen()
        assert "--port" in refused(serve, used_port.getsockname()[1])
