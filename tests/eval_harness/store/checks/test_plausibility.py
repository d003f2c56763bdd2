"""Honest models that agree by chance or skill, and honest names, are not flagged; near-copies are
(other copies: `test_lies.py`). Texts that a spreadsheet would run are escaped.
"""

import random
import re

import pandas as pd
import pytest
from hypothesis import example, given, settings, strategies as st

from eval_harness.store.checks import similar_name_flags, skeleton
from eval_harness.store.results_table import escape_formula, escape_formulas
from eval_harness.store.similarity import compute_digests, describe_similarity
from eval_harness.store.submit import submit_to_store
from tests.eval_harness.store.submitting import make_phantom, responses
from tests.helpers import write_lines

PROSE_TEMPLATES = (
    "The image shows option {}.",
    "{}",
    "I think {} fits best, given the margins.",
    "Answer: {}",
)
ANSWER_STYLES = ("letter", "prose", "yes_no")


def answers(kind, seed, count, right=0.6, favourite=0):
    """Simulate a model that knows a share of the key, and otherwise mostly gives its favourite
    option.
    """
    key, draw = random.Random(count), random.Random(f"{seed} {kind}")
    options = ["Yes", "No"] if kind == "yes_no" else list("ABCD")
    rows = []
    for number in range(count):
        key_position = key.randrange(len(options))
        choice = (
            key_position
            if draw.random() < right
            else (favourite if draw.random() < 0.5 else draw.randrange(len(options)))
        )
        text = draw.choice(PROSE_TEMPLATES).format(options[choice]) if kind == "prose" else options[choice]
        rows.append(row(number, choice, text, key_position, len(options)))
    return rows


def row(number, choice, text, key_position=0, options=4, sample=0, status="answered"):
    return {
        "question_id": f"q{number}", "sample": sample, "response": text, "choice": [choice], "scores": None, "status": status,
        "answer": [key_position], "options": ["x"] * options,
    }  # fmt: skip


def similarity(first_rows, second_rows, withdrawn=False):
    columns = list(row(0, 0, ""))
    first_rows, second_rows = (pd.DataFrame(rows, columns=columns) for rows in (first_rows, second_rows))
    questions = first_rows.drop_duplicates("question_id")
    return describe_similarity(compute_digests(first_rows, questions), compute_digests(second_rows), None, withdrawn)


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(ANSWER_STYLES),
    st.integers(0, 2**32),
    st.integers(20, 400),
    st.floats(0.3, 0.97),
    st.integers(0, 1),
)
def test_strong_or_biased_models_are_not_flagged(kind, seed, count, right, favourite):
    assert similarity(answers(kind, seed, count, right), answers(kind, seed + 1, count, right, favourite)) is None
    constant = answers(kind, seed, count, 0.0)
    for answer in constant:
        answer |= {"response": "A", "choice": [0]}
    assert similarity(constant[:-1], constant) is None and similarity(constant, constant) is None


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(ANSWER_STYLES),
    st.integers(0, 2**32),
    st.integers(120, 400),
    st.floats(0.4, 0.8),
    st.floats(0, 0.08),
)
def test_a_partly_changed_copy_is_flagged(kind, seed, count, right, share):
    original, unrelated, draw = (
        answers(kind, seed, count, right),
        answers(kind, seed + 1, count, right),
        random.Random(seed),
    )
    copy = [new if draw.random() < share else old for old, new in zip(original, unrelated, strict=True)]
    assert similarity(copy, original) and similarity(original, copy)


def test_shared_long_responses_and_withdrawn_answers_are_flagged():
    words = [
        row(number, 0, f"{number}: I look at the picture, and then I think about it. " * 4) for number in range(12)
    ]
    assert "12 long responses" in similarity([*words, row(12, 0, "A")], [*words, row(12, 0, "A.B")])
    short = [row(number, 0, "AB"[number % 2]) for number in range(8)]
    blank = [short[0] | {"response": "A "}, *short[1:]]
    assert similarity(blank, short) is None and "is identical to" in similarity(blank, short, withdrawn=True)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()),
        max_size=60,
    ),
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 2), st.sampled_from("AB"), st.booleans()),
        max_size=60,
    ),
)
def test_results_of_any_size_are_compared(first_answers, second_answers):
    """Includes a result without delivered answers: it must not block later submissions."""

    def result(answers):
        latest = {(question, sample): (text, delivered) for question, sample, text, delivered in answers}
        return [
            row(
                question,
                "AB".index(text),
                text,
                sample=sample,
                status="answered" if delivered else "failed",
            )
            for (question, sample), (text, delivered) in latest.items()
        ]

    pairs = [
        similarity(result(a), result(b))
        for a, b in (
            (first_answers, second_answers),
            (first_answers, first_answers),
            (second_answers, []),
        )
    ]
    assert pairs[2] is None and all(isinstance(words, str | None) for words in pairs)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return make_phantom("probmed", tmp_path_factory.mktemp("data") / "probmed")


def test_copies_by_another_account_are_flagged(data, tmp_path):
    rows = responses(data)
    assert len(rows) >= 60

    def flags(name, rows, model, account):
        path = write_lines(tmp_path / name, rows)
        done = submit_to_store(path, tmp_path / "store", "probmed", model, str(data), account=account)
        return "; ".join(done.submission.flags)

    changed = [{**rows[0], "response": "I cannot tell."}, *rows[1:]]
    assert "that of" not in flags("a", rows, "Mine", "ann")
    assert "are the same" not in flags("b", changed, "Mine", "ann"), "a model may be run again by who ran it"
    flag_lines = flags("c", [*rows[:-1], {**rows[-1], "response": "I cannot tell."}], "Another", "bob")
    assert "the chosen options are the same" in flag_lines and "results/probmed/Mine/" in flag_lines
    assert "identical" in flags("d", rows, "A third", "eve")


def test_honest_names_are_not_flagged():
    for name in (
        "GPT-4o",
        "通义千问 VL",
        "Модель",
        "Modèle médical 7B",
        "GigaChat Вижн",
        "Med-PaLM β",
        "モデル",
    ):
        assert similar_name_flags(name, ["Another", name]) == []


@settings(max_examples=40)
@given(st.text(max_size=40))
@example("\u04d0")  # a Cyrillic letter that looks like a Latin one once its accent is gone
def test_skeleton_is_idempotent(name):
    assert skeleton(skeleton(name)) == skeleton(name)
    assert isinstance(similar_name_flags(name), list)


@settings(max_examples=100)
@given(st.text(max_size=20) | st.text("=+-@;\t\r\n\"' a,", max_size=12))
def test_escaped_cells_are_never_formulas(text):
    """This holds for every cell separator, and if a table is escaped several times."""
    escaped = escape_formula(text).replace("\ufeff", "")
    first_cell, *later_cells = re.split(r"[;\t\r\n]", escaped)
    assert not any(
        cell.startswith(("=", "+", "-", "@"))
        for cell in (first_cell.strip(), *(cell_text.strip(' "') for cell_text in later_cells))
    )
    assert not escaped.startswith(("\t", "\r"))
    assert escape_formula(text).replace("'", "") == text.replace("'", "") and escape_formula(escaped) == escaped


def test_escaped_tables_keep_their_numbers():
    table = pd.DataFrame(
        {
            "model": ["=1+1", "GPT"],
            "value": [-1.5, None],
            "n": pd.array([-3, None], "Int64"),
            "note": [None, "@x"],
        }
    )
    escaped = escape_formulas(table)
    assert escaped["model"].tolist() == ["'=1+1", "GPT"] and escaped["note"].tolist()[1] == "'@x"
    assert escaped["value"].tolist()[0] == -1.5 and escaped["n"].tolist()[0] == -3
