"""Test reading responses: a table of cases as a careful reader reads them, and properties for any
text.
"""

import itertools
import json
import random
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st

from dataset_builders.errors import BadInput
from eval_harness.derive.reading import read_responses
from eval_harness.reader import read_choice
from eval_harness.records.result import STATUSES

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
RESPONSES = [json.loads(line) for line in Path(__file__).with_name("answer_cases.jsonl").read_text().splitlines()]
CHEST = ["Empyema", "Lung abscess", "Bronchiectasis", "Sarcoidosis"]


def read(response: str, options: list[str], kind: str = "single") -> str:
    return "".join(LETTERS[position] for position in read_choice(response, options, kind).choice)


def test_every_case_is_read_as_by_a_careful_reader() -> None:
    """Includes misleading answers."""
    wrong = []
    for case in RESPONSES:
        reading = read_choice(case["response"], case["options"], case["type"], case.get("finish_reason"))
        choice = "".join(LETTERS[position] for position in reading.choice)
        fits = choice == case["choice"] and (choice or reading.status == case.get("status", reading.status))
        if not fits or (reading.status == "answered") != bool(reading.choice) or not reading.rule:
            wrong.append(f"{case['response']!r} of {case['options']}: {case['choice'] or None} wanted, {reading}")
    assert not wrong, "\n" + "\n".join(wrong)


GUIDE = (Path(__file__).parents[3] / "docs" / "reader.md").read_text()
RULES = re.findall(r"(?m)^\| ([\w ]+) \| (?:explicit|declining|implied) \| [^|]+ \| (.+) \|$", GUIDE)


@pytest.mark.parametrize(("rule", "response"), RULES, ids=[name for name, _ in RULES])
def test_example_of_each_rule_in_the_guide_is_read_by_that_rule(rule: str, response: str) -> None:
    response = response.replace(" ⏎ ", "\n")
    readings = [
        read_choice(response, ["rib cyst", "rib fracture", "nodule", "I do not know"]),
        read_choice(response, ["yes", "no"], "yes_no"),
    ]
    assert rule in [reading.rule for reading in readings], readings


def test_list_of_all_options_is_not_an_answer() -> None:
    """A list of the options names none of them, even options like "no", "right" or "cannot be
    determined".
    """
    lists = {tuple(case["options"]) for case in RESPONSES if case["type"] == "single"}
    for options in sorted(lists):
        for form, joined in itertools.product(
            ("({letter}) {text}", "{letter}. {text}", "( {lower} ) {text}"), (" ", ", ")
        ):
            items = [
                form.format(letter=letter, lower=letter.lower(), text=text)
                for letter, text in zip(LETTERS, options, strict=False)
            ]
            for begins in ("", "Answer: ", "What does the image show? "):
                assert read(begins + joined.join(items), list(options)) == "", (begins, items)


@pytest.mark.parametrize(
    ("british", "american"),
    [
        ("haemorrhage", "hemorrhage"), ("oedema", "edema"), ("oesophageal tumour", "esophageal tumor"), ("anaemia", "anemia"),
        ("ischaemic colitis", "ischemic colitis"), ("foetal distress", "fetal distress"), ("caecal volvulus", "cecal volvulus"),
        ("diarrhoea", "diarrhea"), ("apnoea", "apnea"), ("fibre", "fiber"), ("2 metres", "2 meters"), ("anaesthesia", "anesthesia"),
    ],
)  # fmt: skip
def test_british_and_american_spellings_match(british: str, american: str) -> None:
    for response, option in ((british, american), (american, british)):
        for form in ("{}", "The answer is {}.", "The image shows {}, most likely."):
            assert read(form.format(response), ["normal anatomy", option, "sarcoidosis"]) == "B", (
                response,
                option,
                form,
            )


@pytest.mark.parametrize("letter", "EFGHJKZ")
@pytest.mark.parametrize(
    "dress", ["{}", "({})", "The answer is {}.", "Answer: {}", "{}. Something else", "I choose {}."]
)
def test_letter_outside_the_options_is_not_an_answer(dress: str, letter: str) -> None:
    assert read_choice(dress.format(letter), CHEST).status == "irrelevant"


text = st.text(alphabet=st.characters(codec="utf-8"), max_size=300)
pieces = st.lists(
    st.sampled_from(["A", "B", "(C)", "the answer is", "not", "or", "lung abscess", "Empyema", "<think>",
        "</think>", ".", "\n", ":", "option", "\\boxed{", "}", "yes", "no", "is wrong", "a", "**"]),
    max_size=30,
).map(" ".join)  # fmt: skip

option = text | pieces | st.sampled_from(["", "1", "option 1", "Empyema", "x" * 10_000, "lung abscess " * 500])


@settings(max_examples=100, deadline=None)
@given(
    text | pieces | option,
    st.lists(option, min_size=1, max_size=12),
    st.sampled_from(["single", "multiple"]),
)
@example("A", ["", "", ""], "single")
@example("(((", ["(", "*", "\\"], "multiple")
def test_any_text_gives_a_valid_reading(response: str, options: list[str], kind: str) -> None:
    reading = read_choice(response, options, kind)
    assert reading.status in STATUSES and reading.rule
    assert list(reading.choice) == sorted(set(reading.choice))
    assert all(0 <= position < len(options) for position in reading.choice)
    assert (reading.status == "answered") == bool(reading.choice)
    assert kind == "multiple" or len(reading.choice) <= 1


@settings(max_examples=100, deadline=None)
@given(text | pieces)
def test_reasoning_trace_does_not_change_the_reading(trace: str) -> None:
    if "<" not in trace and "◁" not in trace:
        assert read(f"<think>{trace}</think>B", CHEST) == "B"


@settings(max_examples=100, deadline=None)
@given(text | pieces)
def test_any_text_gives_a_valid_yes_no_reading(response: str) -> None:
    assert read_choice(response, ["yes", "no"], "yes_no").choice in ((0,), (1,), ())
    backwards = read_choice(response, ["No", "Yes"], "yes_no").choice
    assert backwards == tuple(1 - position for position in read_choice(response, ["yes", "no"], "yes_no").choice)


@pytest.mark.parametrize(
    "unit",
    ["A B ", "the answer is ", "(", "\n", "a", "<think>", "lung abscess ", "Option A is wrong. ", "\\boxed{",
        "no ", "B, ", "A. Empyema\n", " ", "'", "<", "あB", "A\n", "[[(", ". ", "yes or no "],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["single", "multiple", "yes_no"])
def test_very_long_response_is_read(unit: str, kind: str) -> None:
    options = ["yes", "no"] if kind == "yes_no" else CHEST
    long = unit * (300_000 // len(unit))
    assert read_choice(long, options, kind).status in STATUSES
    if kind == "single" and not unit.startswith("<"):
        assert read(long + "\nThe answer is C.", CHEST) in (
            "C",
            "",
        )  # "" where the loop names another


def work_of(response: str, options: list[str], kind: str) -> int:
    """Count function calls, ours and built-in, while a response is read: independent of the
    machine's load.
    """
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    previous_profiler = sys.getprofile()
    sys.setprofile(count)
    try:
        read_choice(response, options, kind)
    finally:
        sys.setprofile(previous_profiler)
    return calls


@pytest.mark.parametrize("kind", ["single", "multiple", "yes_no"])
def test_work_is_linear_in_the_response_length(kind: str) -> None:
    options = ["yes", "no"] if kind == "yes_no" else CHEST
    units = ["A.A.A.", "answer: ", "the answer is A. ", "Option A is wrong. ", "A, ", "(A) ", "lung abscess ", "I think ", "no ",
        "A. Empyema: wrong. ", "1 = 2, ", "\\boxed{A} ", "<answer>A</answer>", '{"answer": "B"} ', "A is correct. "]  # fmt: skip
    draw = random.Random(5)
    words = " ".join(units).split()
    units += [" ".join(draw.choices(words, k=draw.randint(1, 4))) + " " for _ in range(15)]
    for unit in units:
        short, long = ((unit * length)[:length] for length in (3_000, 12_000))
        read_choice("none", options, kind)  # compiles the options
        few, many = work_of(short, options, kind), work_of(long, options, kind)
        assert many <= 6 * few + 2_000, (unit, few, many)
        assert many <= 20_000 + 10 * len(long), (unit, many)


def _questions() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "question_id": ["q1", "q2"],
            "options": [CHEST, CHEST],
            "question_type": ["single", "single"],
        }
    )


def test_read_responses_keeps_rows_and_statuses() -> None:
    answers = pd.DataFrame(
        {
            "question_id": ["q2", "q1", "q1", "q2"],
            "sample": [0, 0, 1, 1],
            "response": ["B", "C", "the answer is A", None],
            "status": ["answered", "failed", "refused", "answered"],
        },
        index=[7, 3, 9, 1],
    )
    done = read_responses(answers, _questions(), "gmai-mmbench")
    assert done["choice"].tolist() == [[1], [], [], []]
    assert done["status"].tolist() == ["answered", "failed", "refused", "failed"]
    assert done.index.tolist() == [7, 3, 9, 1]
    assert list(answers.columns) == ["question_id", "sample", "response", "status"]


def test_option_scores_decide_unless_they_tie() -> None:
    answers = pd.DataFrame(
        {
            "question_id": ["q1", "q2", "q1", "q2"],
            "sample": [0, 0, 1, 1],
            "response": ["", "", "", "B"],
            "status": "answered",
            "scores": [[0.1, 0.2, 0.6, 0.1], [0.4, 0.4, 0.1, 0.1], [float("nan")] * 4, None],
        }
    )
    done = read_responses(answers, _questions(), "gmai-mmbench")
    assert done["choice"].tolist() == [[2], [], [], [1]]
    assert done["rule"].tolist()[0] == "option scores"


BAD_CALLS = {
    "27 options": lambda: read_choice("A", [str(number) for number in range(27)]),
    "question_type": lambda: read_choice("A", CHEST, "open"),
    "yes and no": lambda: read_choice("yes", ["maybe", "no"], "yes_no"),
    "q9": lambda: read_responses(
        pd.DataFrame({"question_id": ["q9"], "response": ["B"]}), _questions(), "gmai-mmbench"
    ),
    "extraction": lambda: read_responses(pd.DataFrame(), _questions(), "gmai-mmbench", "theirs"),
    "format": lambda: read_responses(pd.DataFrame(), _questions(), "other"),
}


@pytest.mark.parametrize("words", BAD_CALLS)
def test_unknown_values_are_refused(words: str) -> None:
    with pytest.raises(BadInput, match=words):
        BAD_CALLS[words]()


OFFICIAL = [
    ("mediconfusion", "A", "A"),
    ("mediconfusion", "The answer is B.", "B"),
    ("mediconfusion", "B: A mass", ""),
    ("mediconfusion", "A mass", "A"),
    ("mediconfusion", "(B)", ""),
    ("mediconfusion", '("B")', "B"),
    ("mediconfusion", "b", ""),
    ("gmai-mmbench", "B", "B"),
    ("gmai-mmbench", "Empyema", "A"),
    ("gmai-mmbench", "Failed to obtain answer via API.", ""),
    ("halt-medvqa", "C", "C"),
    ("halt-medvqa", " C ", "C"),
    ("halt-medvqa", "C.", ""),
    ("halt-medvqa", "E", ""),
    ("halt-medvqa", "The", ""),
]


@pytest.mark.parametrize(("family", "response", "expected"), OFFICIAL)
def test_official_readers_keep_their_defects(family: str, response: str, expected: str) -> None:
    answers = pd.DataFrame({"question_id": ["q1"], "sample": [0], "response": [response], "status": ["answered"]})
    done = read_responses(answers, _questions(), family, "official")
    assert "".join(LETTERS[position] for position in done["choice"][0]) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [("Yes", [0]), ("yes", [0]), ("yes, there is", []), ("Normal", [1]), ("None", [1]), ("No", [1]), ("Nodule",
        [1]), ("Yes and No", [0, 1]), ("no.", [1])],
)  # fmt: skip
def test_the_official_probmed_reader_looks_for_a_substring(response: str, expected: list[int]) -> None:
    questions = pd.DataFrame({"question_id": ["q"], "options": [["yes", "no"]], "question_type": ["yes_no"]})
    answers = pd.DataFrame({"question_id": ["q"], "sample": [0], "response": [response], "status": ["answered"]})
    assert read_responses(answers, questions, "probmed", "official")["choice"][0] == expected


def test_truncated_response_is_read_only_if_it_states_an_answer() -> None:
    questions = pd.DataFrame({"question_id": ["1"], "options": [["left hip", "right hip"]], "question_type": "single"})
    cases = {
        "B": ("answered", [1]),  # HALT-MedVQA asks for one token
        "The answer is B, because the": ("answered", [1]),
        "The image shows the right hip and": ("truncated", []),
        "First, the marker in": ("truncated", []),
        "": ("truncated", []),
    }
    for text, expected in cases.items():
        row = {
            "question_id": ["1"],
            "sample": 0,
            "response": text,
            "status": "answered",
            "finish_reason": "length",
        }
        reading = read_responses(pd.DataFrame(row), questions, "mediconfusion").iloc[0]
        assert (reading["status"], reading["choice"]) == expected, text
