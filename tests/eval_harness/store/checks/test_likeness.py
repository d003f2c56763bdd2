"""Models that agree as often as their answers let them are no copies. That copies are told: `test_lies.py`."""

import random

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.interop.convert import submit
from eval_harness.store.likeness import digests_of, likeness
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
        rows.append(
            {
                "question_id": f"q{number}",
                "sample": 0,
                "response": text,
                "choice": [choice],
                "scores": None,
                "status": "answered",
            }
        )
    return rows


def alike(one, other):
    return likeness(digests_of(pd.DataFrame(one)), digests_of(pd.DataFrame(other)))


@settings(max_examples=8, deadline=None)
@given(st.sampled_from(KINDS), st.integers(0, 2**32), st.integers(150, 400), st.floats(0.3, 0.85), st.integers(0, 1))
def test_two_models_that_know_much_or_favour_an_option_are_not(kind, seed, count, right, favourite):
    assert alike(answers(kind, seed, count, right), answers(kind, seed + 1, count, right, favourite)) is None
    constant = answers(kind, seed, count, 0.0)
    for row in constant:
        row |= {"response": "A", "choice": [0]}
    assert alike(constant[:-1], constant) is None and alike(constant, constant) is None


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()), max_size=60),
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()), max_size=60),
)
def test_results_of_any_size_are_compared(one, other):
    """Also one in which no answer was delivered: a store that holds it goes on taking others."""

    def result(said):
        latest = {(question, sample): (text, delivered) for question, sample, text, delivered in said}
        rows = [
            {
                "question_id": f"q{question}", "sample": sample, "response": text, "choice": ["AB".index(text)], "scores": None,
                "status": "answered" if delivered else "failed",
            }
            for (question, sample), (text, delivered) in latest.items()
        ]  # fmt: skip
        return pd.DataFrame(rows, columns=["question_id", "sample", "response", "choice", "scores", "status"])

    found = [likeness(digests_of(result(a)), digests_of(result(b))) for a, b in ((one, other), (one, one), (other, []))]
    assert found[2] is None and all(isinstance(each, str | None) for each in found)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


def test_it_is_told_when_another_account_hands_it_in(data, tmp_path):
    rows = responses(data)
    assert len(rows) >= 60

    def flags(name, rows, model, account):
        path = write_lines(tmp_path / name, rows)
        done = submit(path, tmp_path / "store", "probmed", model, str(data), account=account)
        return "; ".join(done.submission.flags)

    changed = [{**rows[0], "response": "I cannot tell."}, *rows[1:]]
    assert "that of" not in flags("a", rows, "Mine", "ann")
    assert "are the same" not in flags("b", changed, "Mine", "ann"), "a model may be run again by who ran it"
    told = flags("c", [*rows[:-1], {**rows[-1], "response": "I cannot tell."}], "Another", "bob")
    assert "are the same (Cohen's kappa" in told and "results/probmed/Mine/" in told
    assert "identical" in flags("d", rows, "A third", "eve")
