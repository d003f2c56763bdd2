"""Task and department of each label: three taggers, majority, agreement (GMAI-MMBench, "label categorization").

A tag table has the columns label, tagger, task, department; it comes from sources.yaml (`tags`), the page (`pages.py`), or both.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from curation.gmai.labels import LabelTable
from curation.images.image_table import need_columns, read_any
from curation.review.page import recorded
from dataset_builders.errors import Problems

SUBJECTS = ("task", "department")
TAGGERS = 3
LOG = "tags.jsonl"


@dataclass(frozen=True)
class Tags:
    """What taggers say: canonical label -> subject -> value, and how far they agree."""

    values: dict[str, dict[str, str]]
    agreement: dict[str, float | None]
    """Krippendorff's alpha (nominal) per subject; None where no label has two taggers or all values are equal."""
    taggers: int
    labels: int
    fewer_than_three: int


def read_votes(table: Path | None, log: Path) -> list[dict[str, str]]:
    """Every tagger's say: label, tagger, task, department. A later line of the page's log replaces an earlier one."""
    votes: dict[tuple[str, str], dict[str, str]] = {}
    if table is not None:
        given = read_any(table)
        need_columns(given, table, ("label", "tagger", *SUBJECTS), "It needs label, tagger, task, department.")
        for row in given.to_dict("records"):
            texts = {name: str(row[name] or "").strip() for name in ("label", "tagger", *SUBJECTS)}
            votes[texts["label"], texts["tagger"]] = texts
    for (label, subject, tagger), value in recorded(log).items():
        known = {"label": label, "tagger": tagger, "task": "", "department": ""}
        votes.setdefault((label, tagger), known)[subject] = value
    return [vote for vote in votes.values() if vote["label"] and vote["tagger"]]


def merge(votes: Iterable[dict[str, str]], table: LabelTable, tasks: Iterable[str], departments: Iterable[str]) -> Tags:
    """The majority of each label's taggers, of whom there must be three; until then the label table holds.

    A tie is settled by the label table, where its value is among the tied.

    Raises BadInput listing values that are no task or department, and ties that nothing settles.
    """
    allowed = {"task": set(tasks), "department": set(departments)}
    problems = Problems()
    by_label: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: {subject: {} for subject in SUBJECTS})
    for vote in votes:
        name = table.name_of(vote["label"])
        if name is None:
            problems.add("tags", vote["label"], "is a label that labels.csv does not have")
            continue
        for subject in SUBJECTS:
            if vote[subject] and vote[subject] not in allowed[subject]:
                problems.add("tags", vote["label"], f"{vote[subject]!r} is no {subject}")
            elif vote[subject]:
                by_label[name][subject][vote["tagger"]] = vote[subject]
    values: dict[str, dict[str, str]] = {}
    for name, subjects in by_label.items():
        for subject, said in subjects.items():
            if len(said) >= TAGGERS:
                values.setdefault(name, {})[subject] = _majority(name, subject, said, table, problems)
    problems.check("Correct the tags; a tie is settled by the value in labels.csv.")
    return Tags(
        values,
        {subject: _alpha([subjects[subject] for subjects in by_label.values()]) for subject in SUBJECTS},
        len({tagger for subjects in by_label.values() for said in subjects.values() for tagger in said}),
        len(by_label),
        sum(min(len(said) for said in subjects.values()) < TAGGERS for subjects in by_label.values()),
    )


def _majority(name: str, subject: str, said: dict[str, str], table: LabelTable, problems: Problems) -> str:
    counts = Counter(said.values()).most_common()
    best = [value for value, count in counts if count == counts[0][1]]
    if len(best) == 1:
        return best[0]
    settled = str(getattr(table.labels[name], subject)) if name in table.labels else ""
    if settled not in best:
        problems.add("tags", name, f"a tie of {' and '.join(sorted(best))}")
        return best[0]
    return settled


def _alpha(said: list[dict[str, str]]) -> float | None:
    """Krippendorff's alpha over labels x taggers, nominal."""
    import krippendorff

    taggers = sorted({tagger for each in said for tagger in each})
    codes = {value: float(at) for at, value in enumerate(sorted({value for each in said for value in each.values()}))}
    if len(codes) < 2 or not any(len(each) > 1 for each in said):
        return None
    data = np.array([[codes[each[tagger]] if tagger in each else np.nan for each in said] for tagger in taggers])
    return float(krippendorff.alpha(reliability_data=data, level_of_measurement="nominal"))


def assigned(labels: Iterable[str], taggers: list[str], seed: int) -> dict[str, list[str]]:
    """Tagger -> labels: each label goes to three taggers, drawn with the seed, as evenly as it can be."""
    shares: dict[str, list[str]] = {tagger: [] for tagger in taggers}
    for label in sorted(labels, key=lambda label: hashlib.sha256(f"{seed}\0{label}".encode()).digest()):
        fewest: list[Any] = sorted(
            taggers,
            key=lambda tagger: (len(shares[tagger]), hashlib.sha256(f"{seed}\0{label}\0{tagger}".encode()).digest()),
        )
        for tagger in fewest[:TAGGERS]:
            shares[tagger].append(label)
    return shares
