"""A person instead of a model: the order of the questions, what the page serves, and a study that
is killed on the way.
"""

import json
import re
import threading
from collections import Counter
from itertools import pairwise

import httpx
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from dataset_builders.hub.repository import open_repository
from dataset_builders.images.phantom_drawings import Drawing, draw_phantom
from dataset_builders.schema import LETTERS
from eval_harness.models import human_reader
from eval_harness.models.human_reader import HumanReader, shuffle_apart
from eval_harness.reader.rules import read_choice
from eval_harness.records.request import Request
from tests.browser import fits
from tests.chaos import warm
from tests.commands import medprobe
from tests.helpers import write_lines
from tests.processes import free_port

STUDY_QUESTIONS = 28


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), name=st.text(max_size=3))
def test_questions_of_a_case_never_follow_each_other(sizes, name):
    """The two are apart unless a case has more than half of all questions. The order depends on the
    name alone.
    """
    cases = [f"case {case}" for case, size in enumerate(sizes) for _ in range(size)]
    ids = [f"q{row}" for row in range(len(cases))]
    order = shuffle_apart(name, ids, cases)
    assert sorted(order) == list(range(len(cases)))
    neighbours = sum(cases[a] == cases[b] for a, b in pairwise(order))
    unavoidable = 2 * max(Counter(cases).values()) - len(cases) - 1
    assert neighbours == max(unavoidable, 0)
    backwards = [*range(len(cases))][::-1]
    turned = shuffle_apart(name, ids[::-1], cases[::-1])
    assert [ids[row] for row in order] == [ids[backwards[row]] for row in turned] or neighbours


def test_first_images_of_pairs_come_before_second_ones():
    cases = [f"{pair}" for pair in range(50) for _ in "12"]
    orders = [shuffle_apart(name, [f"{row}" for row in range(100)], cases) for name in ("R1", "R2")]
    assert orders[0] != orders[1]
    for order in orders:
        assert len({cases[row] for row in order[:50]}) == 50 and len({row % 2 for row in order[:50]}) == 2


STUDY_REQUESTS = [
    Request("a1", 0, "prompt", None, ("left", "right", "both"), "single", question="Where?"),
    Request("b-gt", 0, "prompt", None, ("yes", "no"), "yes_no", question="A nodule?"),
    Request("a2-hallu", 0, "prompt", None, ("red", "green", "blue", "grey"), "multiple", question="Which?"),
    Request("c", 0, "prompt", None, ("no", "Yes"), "yes_no", question="Seen without an image?"),
    Request("d", 0, "prompt", None, tuple(f"option {letter}" for letter in LETTERS), "single", question="Of many?"),
]
PICKS = [["B"], ["yes"], ["A", "C"], ["cannot tell"], ["Z"]]


def study(keys):
    """Answer STUDY_REQUESTS with PICKS; return every byte that was served, and the responses."""
    reader, served, responses = HumanReader("R1"), [], []
    frame = pd.DataFrame({"question_id": [request.question_id for request in STUDY_REQUESTS], "case_id": [*"abacd"]})
    order = reader.order(frame)
    images = [draw_phantom(Drawing("spine", "xray", number=5 + row)) for row in range(3)] + [None, None]
    requests = [
        Request(
            **{name: getattr(STUDY_REQUESTS[row], name) for name in Request.__slots__}
            | {"answer": keys[row], "image": images[row]}
        )
        for row in order
    ]
    run = threading.Thread(target=lambda: responses.extend(reader.generate(iter(requests))), daemon=True)
    run.start()
    transport = httpx.HTTPTransport(retries=9)
    with httpx.Client(base_url=f"http://127.0.0.1:{human_reader.PAGE_PORT}", transport=transport, timeout=60) as client:

        def ask(method, path, **content):
            response = client.request(method, path, **content)
            served.append(bytes(str(response.headers.items()), "utf-8") + response.content)
            return response

        ask("GET", "/")
        for number, row in enumerate(order, 1):
            # the page shows only the current item, whatever is requested
            shown = ask("GET", "/item", params={"item": "1", "go": "3"}).json()
            assert (shown["item"], shown["question"], shown["options"]) == (
                str(number),
                STUDY_REQUESTS[row].question,
                [],
            )
            [picture, other] = [
                ask("GET", "/picture/0", params={"item": f"{place}"}) for place in (number, number % 5 + 1)
            ]
            assert picture.content == images[row] if images[row] else picture.status_code == 404
            assert other.status_code == 404
            multiple = STUDY_REQUESTS[row].question_type == "multiple"
            for wrong in (None, [], "a", ["yes", "no"], ["A", "cannot tell"], {"a": 1}, 3):
                assert "choose" in ask("POST", "/save", json=decision(number, wrong)).json()["error"]
            choice = PICKS[row] if multiple else PICKS[row][0]
            assert ask("POST", "/save", json=decision(number, choice)).json()["said"] == f"saved {number}"
            if number < len(order):
                assert "answered already" in ask("POST", "/save", json=decision(number, choice)).json()["error"]
    run.join(60)
    assert (
        not run.is_alive() and [response.question_id for response in responses] == frame["question_id"][order].tolist()
    )
    return served, {response.question_id: response for response in responses}


def decision(number, value):
    return {"item": str(number), "field": "answer", "value": value}


def test_no_byte_that_is_served_depends_on_the_key(monkeypatch):
    """Two runs with different keys serve the same bytes. What was chosen is what is read."""
    monkeypatch.setattr(human_reader, "PAGE_PORT", free_port())
    bytes_of_keys = []
    for keys in ([(1,), (0,), (0, 2), (1,), (0,)], [(2,), (1,), (3,), (), (24,)]):
        served, responses = study(keys)
        bytes_of_keys.append([re.sub(rb"('date', '[^']*')", b"", part) for part in served])
        for request, picks in zip(STUDY_REQUESTS, PICKS, strict=True):
            text = responses[request.question_id].text
            reading = read_choice(text, request.options, request.question_type)
            chosen = [
                request.options[at] if request.question_type == "yes_no" else LETTERS[at] for at in reading.choice
            ]
            assert (chosen or ["cannot tell"]) == picks and reading.status == ("answered" if chosen else "refused")
    assert bytes_of_keys[0] == bytes_of_keys[1] and not any(b"hallu" in part or b"-gt" in part for part in served)


def test_what_a_person_cannot_be_asked_is_refused_before_a_question(phantoms, tmp_path):
    run = ("eval", "mediconfusion", "--data", phantoms, "--out", "run", "--model")
    for options, words in (
        (("human:",), "the reader's name is missing"),
        (("human:R1", "--method", "ff"), "chooses options directly"),
        (("human:R1", "--method", "gd"), "cannot score options"),
        (("human:R1", "--shots", 1), "omit --shots"),
        (("human:R1", "--samples", 2), "omit --shots and --samples"),
        (("human:R1", "--thinking", "on"), "does not support it"),
    ):
        assert words in medprobe(*run, *options, cwd=tmp_path, code=2).stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
@pytest.mark.browser
def test_a_study_by_keyboard_killed_on_the_way_equals_its_letters(chromium, phantoms, tmp_path):
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright", reason="needs axe-playwright-python (extra dev)"
    ).Axe()
    data = phantoms / "mediconfusion"
    arguments = ("eval", "mediconfusion", "--data", data, "--model", "human:R1", "--out", "run")
    pressed, page = [], chromium.new_page(1440, 900)

    def answer(first, last):
        for number in range(first, last + 1):
            page.wait_for_selector(f"#progress:has-text('{number} of {STUDY_QUESTIONS};')")
            page.wait_for_function("document.querySelector('.picture img').naturalWidth > 0")
            key = "ab"[number * number % 7 % 2] if number % 9 else "0"
            page.keyboard.press("b" if key == "a" else "A")  # changed before it was confirmed
            page.keyboard.press(key)
            page.keyboard.press("Enter")
            pressed.append({"a": "A", "b": "B", "0": "I cannot tell."}[key])

    def journal():
        return [json.loads(line) for line in (tmp_path / "run" / "answers.jsonl").read_text().splitlines()]

    process = warm.start(arguments, tmp_path)
    page.goto(re.search(r"http\S+", process.line("R1 answers on "))[0])
    for width, height, scheme in ((1440, 900, "dark"), (390, 844, "light"), (390, 844, "dark"), (1440, 900, "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_selector("#field-answer button")
        fits(page, width)
        assert min(node.bounding_box()["height"] for node in page.locator("#fields button").all()) >= 36
        violations = axe.run(page, None, {"resultTypes": ["violations"]}).response["violations"]
        assert not violations, [(violation["id"], violation["nodes"][0]["html"][:160]) for violation in violations]
    page.keyboard.press("Enter")
    page.wait_for_selector("#field-answer .bad:has-text('choose an answer')")
    answer(1, 7)
    page.wait_for_selector(f"#progress:has-text('8 of {STUDY_QUESTIONS};')")
    page.keyboard.press("a")  # chosen, but not confirmed
    process.kill()
    process.wait(30)
    assert len(journal()) == 7
    page.keyboard.press("Enter")
    page.wait_for_selector("#lost:has-text('NOT saved')")
    process = warm.start(arguments, tmp_path)
    page.goto(re.search(r"http\S+", process.line("R1 answers on "))[0])
    answer(8, STUDY_QUESTIONS)
    page.wait_for_selector("#empty:has-text('All questions are answered')")
    assert process.wait(60) == 0 and not page.locator("#lost").count() and not chromium.script_errors

    records = journal()
    assert [record["response"] for record in records] == pressed and len(
        {record["question_id"] for record in records}
    ) == STUDY_QUESTIONS
    assert all(record["seconds"] >= 0 for record in records)
    questions = open_repository(data).questions("test").set_index("question_id")
    cases = questions["case_id"][[record["question_id"] for record in records]].tolist()
    assert not any(a == b for a, b in pairwise(cases))
    letters = [
        {"question_id": record["question_id"], "response": text} for record, text in zip(records, pressed, strict=True)
    ]
    write_lines(tmp_path / "letters.jsonl", letters)
    medprobe(
        "eval",
        "mediconfusion",
        "--data",
        data,
        "--model",
        "recorded:letters.jsonl",
        "--out",
        "recorded",
        cwd=tmp_path,
    )
    human, recorded = (json.loads((tmp_path / run / "result.json").read_text()) for run in ("run", "recorded"))
    assert human["scores"] == recorded["scores"] and human["statuses"] == recorded["statuses"]
    assert (human["model"]["name"], human["model"]["kind"]) == ("R1", "human")
    shown = human["scores"]["set_accuracy"]
    assert f"set_accuracy {shown['value']:.1f} %" in process.output_file.read_text()
