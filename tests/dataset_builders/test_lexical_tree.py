"""Test branches of the lexical tree, and parsing the authors' page."""

import numpy as np
import pandas as pd
import pytest

from dataset_builders.errors import BadInput
from dataset_builders.lexical_tree import read_tree, select_by_branches
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
