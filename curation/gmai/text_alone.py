"""Measure what the text of questions gives away: each branch answered without its images, by the option that is most often right elsewhere.

See also: a language model without images (`medprobe curate quality`, `report/blind_baseline.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from curation.gmai.cases import Cell
from curation.gmai.selecting import Written
from curation.report.blind_baseline import SIGNIFICANT, TextAlone, against_chance, text_alone
from dataset_builders.errors import BadInput
from eval_harness.scores.comparing.ranks import holm_adjusted

ALL = ("all", "all", "all")


@dataclass(frozen=True)
class Branch:
    """The single-choice questions of one (modality, task, granularity), or of the whole set (`ALL`), without their images. `flagged`: the
    text gives answers away, among all branches (Holm)."""

    cell: Cell
    found: TextAlone
    flagged: bool

    def __str__(self) -> str:
        name = "all questions" if self.cell == ALL else " > ".join(self.cell)
        return f"{name}: {self.found.correct:.0f} of {self.found.questions} right without the image (chance: {self.found.chance:.0f})"

    def row(self) -> dict[str, Any]:
        """A row of report/blind_majority.csv."""
        return (
            dict(zip(("modality", "task", "granularity"), self.cell, strict=True))
            | vars(self.found)
            | {"flagged": self.flagged}
        )


def majority(written: list[Written]) -> list[Branch]:
    """The whole set and each (modality, task, granularity) with single-choice questions, answered by the option that is most often right
    where it is offered, as learned from questions about other images and patients."""
    own: dict[Cell, list[Written]] = defaultdict(list)
    for each in written:
        if not each.case.is_multiple:
            own[each.case.cell].append(each)
    if not own:
        return []
    found = {cell: _answered(questions) for cell, questions in sorted(own.items())}
    every = [each.choice.options for cell in found for each in own[cell]]
    found = {ALL: against_chance(sum(each.correct for each in found.values()), every)} | found
    adjusted = holm_adjusted(np.array([each.p for each in found.values()]))
    return [
        Branch(cell, each, bool(p <= SIGNIFICANT) and each.is_large)
        for (cell, each), p in zip(found.items(), adjusted, strict=True)
    ]


def _answered(own: list[Written]) -> TextAlone:
    """The questions of a branch: those of a fold by what the other folds say. No patient or image is in two folds."""
    held = [[each.case.item.patient, *(picture for picture, _ in each.case.item.pictures)] for each in own]
    return text_alone([each.choice.options for each in own], [each.choice.right[0] for each in own], held)


def check_text_alone(branches: list[Branch], written: list[Written]) -> None:
    """Raise BadInput where the text gives answers away, naming the worst branches and what is most often right there."""
    flagged = [each for each in branches if each.flagged]
    if not flagged:
        return
    worst = max(
        flagged, key=lambda each: ((each.found.correct - each.found.chance) / each.found.questions, each.cell != ALL)
    )
    answers = Counter(
        each.case.answer for each in written
        if not each.case.is_multiple and worst.cell in (ALL, each.case.cell)
    ).most_common(2)  # fmt: skip
    fewer = f", `per_answer: {answers[1][1]}` or" if len(answers) > 1 and answers[1][1] < answers[0][1] else ""
    raise BadInput(
        f"the text alone gives answers away ({'; '.join(str(each) for each in flagged[:3])}; most often right: {answers[0][0]!r}, "
        f"{answers[0][1]} times). Give{fewer} more cases of the other labels, or leave a label out; --accept-text-alone builds it as it is."
    )
