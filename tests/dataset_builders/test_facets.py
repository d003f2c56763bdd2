"""Test `--facet` over generated questions: alternatives within a facet, conjunction across
facets.
"""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_builders.errors import BadInput
from dataset_builders.facets import select_by_facets
from tests.helpers import refused

MODALITIES, DEPARTMENTS, CATEGORIES = (
    ["CT", "MRI", "X-ray", None],
    ["Urology", "Oncology (Medical)", None],
    ["Cardiac", "Spinal", "Head and Neck"],
)
ROW_LISTS = st.lists(
    st.tuples(
        st.sampled_from(MODALITIES),
        st.sampled_from(DEPARTMENTS),
        st.lists(st.sampled_from(CATEGORIES), max_size=2),
    ),
    min_size=1,
    max_size=25,
)


def make_frame(rows: list[tuple[str | None, str | None, list[str]]]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=["modality", "department", "categories"])
    return table.assign(
        question_id=[str(at) for at in range(len(rows))],
        case_id=[str(at) for at in range(len(rows))],
    )


@given(
    ROW_LISTS,
    st.lists(
        st.sampled_from(
            [
                "modality=CT",
                "modality=mri",
                "Department = urology",
                "category=Cardiac",
                "category=spinal",
            ]
        ),
        max_size=4,
    ),
)
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
