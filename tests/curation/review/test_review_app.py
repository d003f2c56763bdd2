"""The review page in headless Chromium: score by keyboard, edit, a killed server loses nothing that was shown as
saved."""

import io
import json
import socket
import time
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from PIL import Image
from playwright.sync_api import expect

from curation.review.access import FILE
from curation.review.review_app import _for_browser, serve
from curation.review.review_log import LOG, ReviewLog
from curation.writing.question_writing import DRAFTS
from dataset_builders.errors import BadInput
from dataset_builders.files import lock
from tests import processes
from tests.browser import eventually

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[3]
SERVE = (
    "import sys; from pathlib import Path; from curation.review.review_app import serve; "
    "serve(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), reviewers=sys.argv[4:])"
)
HOSTILE = '<img src=x onerror="window.hacked=1">${window.hacked=1}'


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
            "pair_id": f"{k}-{k + 1}", "i": k, "j": k + 1, "sim_med": 0.95, "sim_gen": 0.4, "image_1": first, "image_2": second,
            "caption_1": f"caption one of {k} {HOSTILE}", "caption_2": f"caption two of {k}", "question": f"Which side, {k}?",
            "option_A": "left", "option_B": "right", "correct_1": "A", "correct_2": "B",
        }
        for k, (first, second) in enumerate([("a.png", "b.png"), ("b.png", "c.png"), ("c.png", "d.tif")])
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(questions / DRAFTS)
    return questions, images


def start(folders, *reviewers):
    port = processes.free_port()
    process = processes.start(SERVE, *folders, port, *reviewers, cwd=folders[0].parent)
    for _ in range(1500):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return process, f"http://127.0.0.1:{port}/"
        except OSError:
            assert process.poll() is None, process.said.read_text()
            time.sleep(0.05)
    raise AssertionError("the server did not start")


def kill(process):
    process.kill()
    process.wait(30)


def open_page(chromium, address, name):
    page = chromium.new_page()
    page.goto(address)
    page.fill("#reviewer input, #reviewer textarea", name)
    page.keyboard.press("Enter")
    page.wait_for_selector(f"#status :text('{name} reviewed')")
    page.locator("#reviewer input, #reviewer textarea").blur()
    return page


def said(page, text):
    page.wait_for_selector(f"#status :text('{text}')")


def test_a_review_by_keyboard_survives_a_killed_server(chromium, folders):
    questions, _ = folders
    process, address = start(folders)
    try:
        page = open_page(chromium, address, "Ada")
        page.wait_for_function(
            "[...document.querySelectorAll('.picture img')].map((i) => i.naturalWidth).join() === '500,500'"
        )
        assert "caption one" not in page.inner_text("body")
        page.keyboard.press("8")
        said(page, "saved 0-1 score 1")
        page.keyboard.press("Shift+Digit0")
        said(page, "saved 0-1 score 2")
        for key, check in (("x", "correctness"), ("l", "language")):
            page.keyboard.press(key)
            said(page, f"saved 0-1 {check}")
        said(page, "Ada reviewed 0 of 3")
        page.keyboard.press("e")
        page.keyboard.press("Control+a")
        page.keyboard.type("Which side is opaque?")
        page.keyboard.press("Escape")
        said(page, "saved 0-1 question")
        page.keyboard.press("v")
        said(page, "saved 0-1 relevance")
        said(page, "Ada reviewed 1 of 3")
        page.keyboard.press("c")
        page.wait_for_selector("#captions :text('caption one of 0')")
        assert HOSTILE in page.inner_text("#captions")
        assert page.evaluate("window.hacked") is None
        page.keyboard.press("o")
        page.wait_for_function(
            "document.querySelector('#question textarea, #question input').value === 'Which side, 1?'"
        )
        expect(page.locator("#score_1 input:checked")).to_have_count(0)
        page.keyboard.press("9")
        page.keyboard.press("3")  # at once: the second of two quick scores counts
        said(page, "1-2 score 1")
        eventually(lambda: ReviewLog(questions).pairs["1-2"].reviews["Ada"].score_1, 3)
        expect(page.locator("#score_1 input:checked")).to_have_value("3")
        page.fill("#option_A textarea, #option_A input", "upwards")
        expect(page.locator("#shown")).to_contain_text("A: upwards")
    finally:
        kill(process)
    log = ReviewLog(questions)
    review = log.pairs["0-1"].reviews["Ada"]
    assert (review.score_1, review.score_2, review.relevance) == (8, 10, True)
    assert log.pairs["0-1"].question == "Which side is opaque?"
    assert log.pairs["1-2"].reviews["Ada"].score_1 == 3
    process, address = start(folders)
    try:
        page = open_page(chromium, address, "Ada")
        said(page, "Ada reviewed 1 of 3")
        expect(page.locator("#question textarea, #question input")).to_have_value("Which side is opaque?")
        expect(page.locator("#score_2 input:checked")).to_have_value("10")
        other = open_page(chromium, address, "Bo")
        said(other, "Bo reviewed 0 of 3")
        expect(other.locator("#score_1 input:checked")).to_have_count(0)
        other.keyboard.press("7")
        said(other, "saved 0-1 score 1")
        other.click("#agree")
        other.wait_for_selector("#agreed :text('1 problems scored by more than one')")
    finally:
        kill(process)
    entries = [json.loads(line) for line in (questions / LOG).read_text().splitlines()]
    who = [entry["reviewer"] for entry in entries]
    assert who in (["Ada"] * 7 + ["Bo"], ["Ada"] * 8 + ["Bo"])  # of two quick scores the first may never have been sent


def test_zoom_contrast_and_what_cannot_be_saved(chromium, folders):
    questions, _ = folders
    process, address = start(folders)
    try:
        page = open_page(chromium, address, "Ada")
        image = page.locator(".picture img").first
        page.wait_for_function(
            "document.querySelector('.picture img')?.style.transform && document.querySelector('.picture img').naturalWidth > 0"
        )
        before = image.evaluate("(node) => node.getBoundingClientRect().width")
        page.locator(".picture").first.hover()
        page.mouse.wheel(0, -400)
        page.wait_for_function(f"document.querySelector('.picture img').getBoundingClientRect().width > 2 * {before}")
        page.locator(".side input[type=range]").nth(1).evaluate(
            "(node) => { node.value = 250; node.dispatchEvent(new Event('input', {bubbles: true})); }"
        )
        assert "contrast(250%)" in image.evaluate("(node) => node.style.filter")
        width = image.evaluate("(node) => node.getBoundingClientRect().width")
        page.keyboard.press("+")
        page.keyboard.press("]")
        page.keyboard.press("ArrowLeft")
        assert image.evaluate("(node) => node.getBoundingClientRect().width") == pytest.approx(1.25 * width, rel=0.01)
        assert "contrast(260%)" in image.evaluate("(node) => node.style.filter")
        page.keyboard.press("r")
        assert image.evaluate("(node) => node.getBoundingClientRect().width") == pytest.approx(before, rel=0.01)
        assert "contrast(100%)" in image.evaluate("(node) => node.style.filter")
        page.fill("#option_A textarea, #option_A input", "right")
        page.locator("#option_A textarea, #option_A input").blur()
        said(page, "NOT saved: option_A: reads the same")
        assert not (questions / LOG).exists()
        page.keyboard.press("p")  # round to the last pair, whose second image is a 16-bit TIFF
        page.wait_for_function(
            "[...document.querySelectorAll('.picture img')].map((i) => i.naturalWidth).join() === '500,70'"
        )
    finally:
        kill(process)


def test_two_reviewers_never_overwrite_each_other_unread(chromium, folders):
    """Bo's page is older than Ada's edit: passing through the field changes nothing, and his own edit is held back with her name."""
    questions, _ = folders
    process, address = start(folders)
    try:
        ada, bo = open_page(chromium, address, "Ada"), open_page(chromium, address, "Bo")
        ada.fill("#question textarea, #question input", "Which side is opaque?")
        ada.locator("#question textarea, #question input").blur()
        said(ada, "saved 0-1 question")
        bo.keyboard.press("e")
        bo.keyboard.press("Escape")
        said(bo, "nothing changed")
        bo.fill("#question textarea, #question input", "Which lung?")
        bo.locator("#question textarea, #question input").blur()
        said(bo, "NOT saved: Ada changed question")
        assert ReviewLog(questions).pairs["0-1"].question == "Which side is opaque?"
        bo.keyboard.press("n")
        bo.wait_for_function("document.querySelector('#question textarea, #question input').value === 'Which side, 1?'")
        bo.keyboard.press("p")
        bo.wait_for_function(
            "document.querySelector('#question textarea, #question input').value === 'Which side is opaque?'"
        )
        bo.fill("#question textarea, #question input", "Which lung?")
        bo.locator("#question textarea, #question input").blur()
        said(bo, "saved 0-1 question")
    finally:
        kill(process)
    assert ReviewLog(questions).pairs["0-1"].question == "Which lung?"


def test_a_category_that_was_typed_is_saved_and_a_dead_server_is_told(chromium, folders):
    """Gradio says nothing of a category that is typed or taken away by key; and what no server took must not look saved."""
    questions, _ = folders
    process, address = start(folders)
    try:
        page = open_page(chromium, address, "Ada")
        page.click("#categories_1 input")
        page.keyboard.type("My own")
        page.keyboard.press("Enter")
        page.keyboard.press("Escape")
        said(page, "saved 0-1 categories 1")
        page.click("#categories_2 input")
        page.keyboard.type("Left while typing")
        page.keyboard.press("Escape")
        said(page, "saved 0-1 categories 2")
        assert ReviewLog(questions).pairs["0-1"].categories_1 == ["My own"]
        assert ReviewLog(questions).pairs["0-1"].categories_2 == ["Left while typing"]
        page.click("#categories_1 input")
        page.keyboard.press("Backspace")
        page.keyboard.press("Escape")
        said(page, "saved 0-1 categories 1")
        page.wait_for_function("!document.querySelector('#categories_1').innerText.includes('My own')")
        assert not page.locator("#lost").count()
    finally:
        kill(process)
    page.keyboard.press("8")
    page.wait_for_selector("#lost :text('NOT saved'), #lost:has-text('NOT saved')")
    assert ReviewLog(questions).pairs["0-1"].reviews == {}


def test_each_reviewer_has_a_link_and_nobody_else_gets_in(chromium, folders):
    """The name is the link's: what is typed, sent or guessed changes nothing."""
    questions, _ = folders
    process, address = start(folders, "Dr Ada", "Bo")
    keys = json.loads((questions / FILE).read_text())
    assert keys.keys() == {"Dr Ada", "Bo"} and (questions / FILE).stat().st_mode & 0o077 == 0
    try:
        for path in ("", "picture/0-1/1", "config", f"?key={keys['Bo'][:-1]}", "gradio_api/info"):
            assert httpx.get(address + path).status_code == 401
        page = chromium.new_page()
        page.goto(f"{address}?key={keys['Bo']}")
        said(page, "Bo reviewed 0 of 3")
        expect(page).to_have_url(address)
        expect(page.locator("#reviewer input, #reviewer textarea")).to_be_disabled()
        page.keyboard.press("1")
        said(page, "saved 0-1 score 1")
    finally:
        kill(process)
    assert [json.loads(line)["reviewer"] for line in (questions / LOG).read_text().splitlines()] == ["Bo"]
    start(folders, "Dr Ada")[0].kill()
    assert json.loads((questions / FILE).read_text()) == keys  # links stay good, also of those who are away today


def test_other_machines_need_reviewers_and_a_whole_certificate(folders):
    for given, what in (({"host": "0.0.0.0"}, "--reviewers"), ({"reviewers": [" "]}, "names nobody"),
                        ({"reviewers": ["A"], "certificate": Path("x")}, "go together"),
                        ({"reviewers": ["A"], "certificate": Path("x"), "key": Path("y")}, "no such file")):  # fmt: skip
        with pytest.raises(BadInput, match=what):
            serve(*folders, **given)


def test_a_film_is_shown_as_the_picture_that_models_see():
    frames = [Image.new("L", (8, 8), 10 * k) for k in range(3)]
    for kind, mime in (("GIF", "image/png"), ("WEBP", "image/png"), ("PNG", "image/png")):
        buffer = io.BytesIO()
        frames[0].save(buffer, kind, save_all=True, append_images=frames[1:])
        shown = _for_browser(buffer.getvalue())
        assert shown[0] == mime
        assert not getattr(Image.open(io.BytesIO(shown[1])), "is_animated", False)


def test_one_server_per_folder_and_per_port(folders):
    questions, images = folders
    with lock(questions, "review"), pytest.raises(BadInput, match="another process"):
        serve(questions, images, 0)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="--port"):
            serve(questions, images, taken.getsockname()[1])
