"""A question as it is written to the files, and what stays of it from one run to the next: words and options as long as they are right
(what a person has validated must not change behind his back), its number and its patient's split for good."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from curation.gmai.asking.options import Choice
from curation.gmai.cases import Case
from curation.gmai.sources import Sources
from dataset_builders.files import replace_file
from dataset_builders.schema import LETTERS

DRAWN = "questions.json"
NUMBERS = "numbers.json"
CASES = "cases.json"
"""What the pages show of the last run."""


@dataclass(frozen=True)
class Written:
    """A case with its words, options and split."""

    case: Case
    question: str
    choice: Choice
    split: str
    index: int
    """What the question is called in the set: a number from 1."""

    @property
    def letters(self) -> str:
        """The right letters: "B", or "A,C"."""
        return ",".join(LETTERS[at] for at in self.choice.right)


def read_drawn(private: Path) -> dict[str, tuple[str, Choice]]:
    """Case -> question and options of the last run."""
    path = private / DRAWN
    if not path.is_file():
        return {}
    return {
        key: (entry["question"], Choice(tuple(entry["options"]), tuple(entry["right"])))
        for key, entry in json.loads(path.read_text(encoding="utf-8")).items()
    }


def write_drawn(
    private: Path, written: list[Written], before: dict[str, tuple[str, Choice]], possible: Set[str]
) -> None:
    """Keep the questions and options of this run, and of `possible` cases that are not in it but were."""
    drawn = {case: draw for case, draw in before.items() if case in possible}
    drawn |= {each.case.case: (each.question, each.choice) for each in written}
    document = {
        key: {"question": question, "options": list(choice.options), "right": list(choice.right)}
        for key, (question, choice) in drawn.items()
    }
    replace_file(private / DRAWN, json.dumps(document, ensure_ascii=False, indent=0).encode())


@dataclass(frozen=True)
class Numbers:
    """The numbers of the cases of earlier runs (case -> index) and the splits of their patients (no split where the seed or the share of
    the validation is another one now)."""

    indices: Mapping[str, int]
    splits: Mapping[str, str]

    def numbered(self, cases: Sequence[Case], splits: Mapping[str, str]) -> dict[str, int]:
        """Case -> index: as before, new ones after all others (validation first, then single choice, then in the order drawn)."""
        fresh = [case for case in cases if case.case not in self.indices]
        fresh.sort(key=lambda case: (splits[case.case] != "validation", case.is_multiple, case.order))
        after = max(self.indices.values(), default=0)
        return dict(self.indices) | {case.case: after + number for number, case in enumerate(fresh, 1)}


def read_numbers(private: Path, sources: Sources) -> Numbers:
    """The numbers and splits of earlier runs."""
    path = private / NUMBERS
    kept = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"indices": {}}
    return Numbers(kept["indices"], kept["splits"] if kept.get("drawn_with") == _drawn_with(sources) else {})


def write_numbers(private: Path, written: list[Written], before: Numbers, sources: Sources, gone: Set[str]) -> None:
    """Keep the numbers and splits of this run and of earlier ones; no split of patients who are `gone`."""
    splits = dict(before.splits) | {each.case.item.patient: each.split for each in written}
    document = {
        "drawn_with": _drawn_with(sources),
        "splits": {patient: name for patient, name in splits.items() if patient not in gone},
        "indices": dict(before.indices) | {each.case.case: each.index for each in written},
    }
    replace_file(private / NUMBERS, json.dumps(document, indent=0).encode())


def _drawn_with(sources: Sources) -> list[float]:
    return [sources.seed, sources.validation]
