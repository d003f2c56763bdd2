"""Counts of a finished set in the form of the paper's tables 5 to 7: modalities, labels and cases per task, department, granularity.

As in the paper, a multiple-choice question counts once per right option; `multiple_questions` counts the questions themselves.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from curation.gmai.asking.written import Written
from curation.gmai.labelling.labels import LabelTable
from curation.gmai.labelling.tree_values import GRANULARITIES


def table_of(written: list[Written], subject: str, abbreviations: Mapping[str, str]) -> pd.DataFrame:
    """One row per value of `subject` (task, department): single and multiple choice apart (tables 5 and 6)."""
    rows = []
    for value in sorted({getattr(each.case, subject) for each in written}):
        own = [each for each in written if getattr(each.case, subject) == value]
        row: dict[str, object] = {subject: value, "abbreviation": abbreviations.get(value, value)}
        for kind, some in (
            ("single", [each for each in own if not each.case.is_multiple]),
            ("multiple", [each for each in own if each.case.is_multiple]),
        ):
            row |= {
                f"{kind}_modalities": _modalities(some),
                f"{kind}_labels": _labels(some),
                f"{kind}_cases": _cases(some),
            }
        rows.append(row | {"multiple_questions": sum(each.case.is_multiple for each in own)})
    return pd.DataFrame(rows)


def granularity_table(written: list[Written]) -> pd.DataFrame:
    """Table 7: granularities, image level with single (*) and multiple choice (#) apart."""
    rows = []
    for granularity in reversed(GRANULARITIES):
        own = [each for each in written if each.case.granularity == granularity]
        for name, some in (
            (granularity, [each for each in own if not each.case.is_multiple]),
            (f"{granularity} (multiple choice)", [each for each in own if each.case.is_multiple]),
        ):
            if some:
                rows.append(
                    {
                        "granularity": name,
                        "modalities": _modalities(some),
                        "labels": _labels(some),
                        "cases": _cases(some),
                    }
                )
    return pd.DataFrame(rows, columns=["granularity", "modalities", "labels", "cases"])


def label_table(written: list[Written], table: LabelTable) -> pd.DataFrame:
    """Cases per label, with its branch and its MeSH id (blank where labels.csv gives none)."""
    rows = [
        {"label": name, "task": e.case.task, "department": e.case.department, "granularity": e.case.granularity,
         "modality": e.case.modality}
        for e in written for name in e.case.answers
    ]  # fmt: skip
    columns = ["task", "department", "granularity", "modality", "label"]
    counted = pd.DataFrame(rows, columns=["label", *columns[:-1]]).groupby(columns, as_index=False).size()
    mesh = [table.labels[name].mesh if name in table.labels else "" for name in counted["label"]]
    return counted.rename(columns={"size": "cases"}).assign(mesh=mesh)


def _modalities(some: list[Written]) -> int:
    return len({each.case.modality for each in some})


def _labels(some: list[Written]) -> int:
    return len({name for each in some for name in each.case.answers})


def _cases(some: list[Written]) -> int:
    return sum(len(each.case.answers) for each in some)
