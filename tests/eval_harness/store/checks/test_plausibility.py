"""Each lie that numbers cannot refute is put before a human; what honest runs say of themselves is not."""

import re

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_harness.store.checks import similar_name_flags, skeleton
from eval_harness.store.results_table import escape_formula, escape_formulas


def test_honest_names_are_not_flagged():
    for name in ("GPT-4o", "通义千问 VL", "Модель", "Modèle médical 7B", "GigaChat Вижн", "Med-PaLM β", "モデル"):
        assert similar_name_flags(name, ["Another", name]) == []


@settings(max_examples=40)
@given(st.text(max_size=40))
@example("\u04d0")  # a Cyrillic letter that looks like a Latin one once its accent is gone
def test_any_name_has_a_skeleton_that_is_its_own(name):
    assert skeleton(skeleton(name)) == skeleton(name)
    assert isinstance(similar_name_flags(name), list)


@settings(max_examples=100)
@given(st.text(max_size=20) | st.text("=+-@;\t\r\n\"' a,", max_size=12))
def test_no_cell_is_a_formula(text):
    """Whichever sign a spreadsheet divides the line by, and however often a table is made harmless."""
    shown = escape_formula(text).replace("\ufeff", "")
    first, *others = re.split(r"[;\t\r\n]", shown)
    assert not any(
        cell.startswith(("=", "+", "-", "@")) for cell in (first.strip(), *(each.strip(' "') for each in others))
    )
    assert not shown.startswith(("\t", "\r"))
    assert escape_formula(text).replace("'", "") == text.replace("'", "") and escape_formula(shown) == shown


def test_tables_of_results_are_harmless_and_keep_their_numbers():
    table = pd.DataFrame(
        {"model": ["=1+1", "GPT"], "value": [-1.5, None], "n": pd.array([-3, None], "Int64"), "note": [None, "@x"]}
    )
    shown = escape_formulas(table)
    assert shown["model"].tolist() == ["'=1+1", "GPT"] and shown["note"].tolist()[1] == "'@x"
    assert shown["value"].tolist()[0] == -1.5 and shown["n"].tolist()[0] == -3
