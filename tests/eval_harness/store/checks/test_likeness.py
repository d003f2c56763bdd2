"""Models that agree as often as their answers let them are no copies. That copies are told: `test_lies.py`."""

import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.interop.convert import convert_and_submit
from eval_harness.store.similarity import compute_digests, describe_similarity
from tests.eval_harness.store.submitting import phantom, responses
from tests.helpers import write_lines

PROSE = ("The image shows option {}.", "{}", "I think {} fits best, given the margins.", "Answer: {}")
KINDS = ("letter", "prose", "yes_no")


def answers(kind, seed, count, right=0.6, favourite=0):
    """Answers of a model that knows the key in so many cases, and otherwise says mostly its favourite."""
    key, draw = random.Random(count), random.Random(f"{seed} {kind}")
    options = ["Yes", "No"] if kind == "yes_no" else list("ABCD")
    rows = []
    for number in range(count):
        wanted = key.randrange(len(options))
        choice = (
            wanted if draw.random() < right else (favourite if draw.random() < 0.5 else draw.randrange(len(options)))
        )
        text = draw.choice(PROSE).format(options[choice]) if kind == "prose" else options[choice]
        rows.append(row(number, choice, text, wanted, len(options)))
    return rows


def row(number, choice, text, wanted=0, options=4, sample=0, status="answered"):
    return {
        "question_id": f"q{number}", "sample": sample, "response": text, "choice": [choice], "scores": None, "status": status,
        "answer": [wanted], "options": ["x"] * options,
    }  # fmt: skip


def alike(one, other, withdrawn=False):
    columns = list(row(0, 0, ""))
    one, other = (pd.DataFrame(rows, columns=columns) for rows in (one, other))
    questions = one.drop_duplicates("question_id")
    return describe_similarity(compute_digests(one, questions), compute_digests(other), None, withdrawn)


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(20, 400), st.floats(0.3, 0.97), st.integers(0, 1))
def test_two_models_that_know_much_or_favour_an_option_are_not(kind, seed, count, right, favourite):
    assert alike(answers(kind, seed, count, right), answers(kind, seed + 1, count, right, favourite)) is None
    constant = answers(kind, seed, count, 0.0)
    for answer in constant:
        answer |= {"response": "A", "choice": [0]}
    assert alike(constant[:-1], constant) is None and alike(constant, constant) is None


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(120, 400), st.floats(0.4, 0.8), st.floats(0, 0.08))
def test_a_copy_of_which_a_part_was_changed_is(kind, seed, count, right, share):
    one, others, draw = answers(kind, seed, count, right), answers(kind, seed + 1, count, right), random.Random(seed)
    copy = [new if draw.random() < share else old for old, new in zip(one, others, strict=True)]
    assert alike(copy, one) and alike(one, copy)


def test_the_same_long_words_are_told_however_good_the_models_and_what_was_withdrawn_however_few():
    words = [
        row(number, 0, f"{number}: I look at the picture, and then I think about it. " * 4) for number in range(12)
    ]
    assert "12 long responses" in alike([*words, row(12, 0, "A")], [*words, row(12, 0, "A.B")])
    short = [row(number, 0, "AB"[number % 2]) for number in range(8)]
    blank = [short[0] | {"response": "A "}, *short[1:]]
    assert alike(blank, short) is None and "is identical to" in alike(blank, short, withdrawn=True)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()), max_size=60),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()), max_size=60),
)
def test_results_of_any_size_are_compared(one, other):
    """Also one in which no answer was delivered: a store that holds it goes on taking others."""

    def result(said):
        latest = {(question, sample): (text, delivered) for question, sample, text, delivered in said}
        return [
            row(question, "AB".index(text), text, sample=sample, status="answered" if delivered else "failed")
            for (question, sample), (text, delivered) in latest.items()
        ]

    pairs = [alike(result(a), result(b)) for a, b in ((one, other), (one, one), (other, []))]
    assert pairs[2] is None and all(isinstance(words, str | None) for words in pairs)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


def test_it_is_told_when_another_account_hands_it_in(data, tmp_path):
    rows = responses(data)
    assert len(rows) >= 60

    def flags(name, rows, model, account):
        path = write_lines(tmp_path / name, rows)
        done = convert_and_submit(path, tmp_path / "store", "probmed", model, str(data), account=account)
        return "; ".join(done.submission.flags)

    changed = [{**rows[0], "response": "I cannot tell."}, *rows[1:]]
    assert "that of" not in flags("a", rows, "Mine", "ann")
    assert "are the same" not in flags("b", changed, "Mine", "ann"), "a model may be run again by who ran it"
    told = flags("c", [*rows[:-1], {**rows[-1], "response": "I cannot tell."}], "Another", "bob")
    assert "the chosen options are the same" in told and "results/probmed/Mine/" in told
    assert "identical" in flags("d", rows, "A third", "eve")
