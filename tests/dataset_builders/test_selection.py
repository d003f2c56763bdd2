"""Test the selection of questions by branches and facets, and parsing the authors' tree."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st

from dataset_builders.benchmarks.gmai_mmbench.reader import read_tree
from dataset_builders.errors import BadInput
from dataset_builders.facets import select_by_branches, select_by_facets
from tests.helpers import refused

TREE_QUESTIONS = pd.DataFrame(
    [
        ("Disease Diagnosis", "Ophthalmology", "Image Level", "Fundus Photography", "glaucoma"),
        ("Severity Grading", "Ophthalmology", "Image Level", "Fundus Photography", "early"),
        ("Disease Diagnosis", "Ophthalmology", "Mask Level", "OCT", "drusen"),
        ("Disease Diagnosis", "Pulmonary Medicine", "Box Level", "X-ray", "nodule"),
        ("Counting", "Hematology", "Image Level", "Microscopy", None),
        ("Counting", None, None, None, None),
        (None, "Hematology", "Mask Level", "CT", ""),
    ],
    columns=["task", "department", "granularity", "modality", "keyword"],
)


@pytest.mark.parametrize(
    ("branches", "rows"),
    [
        ([], [0, 1, 2, 3, 4, 5, 6]),
        (["Ophthalmology"], [0, 1, 2]),
        (["Ophthalmology > Fundus Photography"], [0, 1]),
        ([" ophthalmology>FUNDUS photography "], [0, 1]),
        (["Ophthalmology > Fundus Photography > early"], [1]),
        (["OCT", "X-ray"], [2, 3]),
        # Branches of one subject are alternatives, those of different subjects must all hold.
        (["Disease Diagnosis > OCT", "Counting"], [2, 4, 5]),
        (["department: Ophthalmology", "Disease Diagnosis"], [0, 2]),
        # A branch inside another one adds nothing.
        (["Ophthalmology", "Ophthalmology > OCT"], [0, 1, 2]),
        (["Hematology", "Ophthalmology > OCT", "Image Level"], [4]),
        (["task: unlabelled > CT"], [6]),
        (["CT"], [6]),
    ],
)
def test_branches_select_questions(branches, rows):
    mask = select_by_branches(TREE_QUESTIONS, branches)
    assert mask.dtype == bool
    assert np.flatnonzero(mask).tolist() == rows


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        ("Ophtalmology", "Did you mean Ophthalmology"),
        ("Fundus", "Fundus Photography"),
        ("Astrology > OCT", "Astrology"),
        ("Ophthalmology > X-ray", "no question is on this branch"),
        ("Ophthalmology > Disease Diagnosis", "as separate branches"),
        ("Ophthalmology >", "a step is empty"),
        ("", "a step is empty"),
    ],
)
def test_unknown_branch_suggests_near_misses(branch, words):
    assert words in refused(select_by_branches, TREE_QUESTIONS, [branch])


TREE_PAGE = """<!DOCTYPE html><html><body><ul><li>menu</li></ul>
<div id="clinical-tasks" class="x"><div class="category-title">Clinical Tasks</div><ul class="category-list">
<li><a href="#" onclick="f('a')">Bone &amp; joint</a>
<ul id="a"><li><a href="#">CT</a><ul><li>hip </li><li>a &lt; b</li></ul></li><li><a href="#">X-ray</a><ul><li>hip</li></ul></li></ul></li>
</ul></div>
<div id="departments"><ul><li><a href="#"></a><ul><li><a href="#">X-ray</a><ul><li>nameless</li></ul></li></ul></li></ul></div>
<script>var x = "<li>no</li>";</script></body></html>"""


def test_tree_page_is_read_with_notes(tmp_path):
    (tmp_path / "t.html").write_text(TREE_PAGE)

    # The menu and the script of the page must be ignored.
    rows, notes = read_tree(tmp_path / "t.html")
    assert rows == [
        ("task", "Bone & joint", "CT", "hip"),
        ("task", "Bone & joint", "CT", "a < b"),
        ("task", "Bone & joint", "X-ray", "hip"),
        ("department", "", "X-ray", "nameless"),
    ]
    assert "one department has no name" in " ".join(notes)


@pytest.mark.parametrize("text", ["<html></html>", "<div id='departments'></div>", "just text", "<ul><li>x</li></ul>"])
def test_page_without_a_tree_is_rejected(tmp_path, text):
    (tmp_path / "t.html").write_text(text)
    with pytest.raises(BadInput, match="no lexical tree"):
        read_tree(tmp_path / "t.html")


ROW_LISTS = st.lists(
    st.tuples(
        st.sampled_from(["CT", "MRI", "X-ray", None]),
        st.sampled_from(["Urology", "Oncology (Medical)", None]),
        st.lists(st.sampled_from(["Cardiac", "Spinal", "Head and Neck"]), max_size=2),
    ),
    min_size=1,
    max_size=25,
)


def make_frame(rows: list[tuple[str | None, str | None, list[str]]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["modality", "department", "categories"])


FACET_EXPRESSIONS = ["modality=CT", "modality=mri", "Department = urology", "category=Cardiac", "category=spinal"]


@given(ROW_LISTS, st.lists(st.sampled_from(FACET_EXPRESSIONS), max_size=4))
def test_facets_combine_with_or_within_and_and_across(
    rows: list[tuple[str | None, str | None, list[str]]], facets: list[str]
) -> None:
    # An independent model of the rule: every named facet must match one of its values.
    chosen: dict[str, set[str]] = {}
    for expression in facets:
        name, value = (part.strip().lower() for part in expression.split("="))
        chosen.setdefault(name, set()).add(value)

    row_labels = [
        {
            "modality": {str(m).lower()} if m else set(),
            "department": {str(d).lower()} if d else set(),
            "category": {c.lower() for c in cs},
        }
        for m, d, cs in rows
    ]
    labels_by_facet = {
        name: {label for row in row_labels for label in row[name]} for name in ("modality", "department", "category")
    }
    expected = [all(row[name] & values for name, values in chosen.items()) for row in row_labels]

    # Unknown labels and empty selections are errors.
    if any(values - labels_by_facet[name] for name, values in chosen.items()) or (chosen and not any(expected)):
        with pytest.raises(BadInput, match="--facet"):
            select_by_facets(make_frame(rows), facets)
        return

    mask = select_by_facets(make_frame(rows), facets)
    assert mask.tolist() == expected


@pytest.mark.parametrize(
    ("facets", "words"),
    [
        (["modality=CTT"], "Did you mean CT?"),
        (["modality=PET"], "Available: CT, MRI"),
        (["organ=heart"], "Available: category, modality, department."),
        (["modality"], "write FACET=VALUE"),
        (["=CT"], "write FACET=VALUE"),
        (["modality="], "write FACET=VALUE"),
        (["modality=CT", "department=Urology"], "no question has them all"),
    ],
)
def test_invalid_facet_is_rejected(facets: list[str], words: str) -> None:
    questions = make_frame([("CT", "Oncology (Medical)", ["Cardiac"]), ("MRI", "Urology", [])])
    assert words in refused(select_by_facets, questions, facets)
