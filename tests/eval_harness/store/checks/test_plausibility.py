"""Claims that numbers cannot refute are flagged for review; honest names and tables are not
affected.
"""

import re

import pandas as pd
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_harness.store.checks import similar_name_flags, skeleton
from eval_harness.store.results_table import escape_formula, escape_formulas


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
