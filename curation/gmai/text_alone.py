"""Measure what the text of questions gives away: each branch answered without its images, by the option that is most often
right elsewhere, or by a language model.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from curation.gmai import FORMAT
from curation.gmai.cases import Cell
from curation.gmai.selecting import Written
from curation.report.blind_baseline import SIGNIFICANT, TextAlone, against_chance, replies_without_images, text_alone
from curation.writing.asking import Asking, Writer
from dataset_builders.errors import BadInput
from eval_harness.derive.answers import read_answers
from eval_harness.scores.comparing.ranks import holm_adjusted

REPLIES = "blind.jsonl"


@dataclass(frozen=True)
class Branch(TextAlone):
    """The single-choice questions of one (modality, task, granularity), or of the whole set ("all"), without their images."""

    modality: str = "all"
    task: str = "all"
    granularity: str = "all"
    flagged: bool = False
    """The text gives answers away, among all branches (Holm)."""

    def __str__(self) -> str:
        name = "all questions" if self.task == "all" else f"{self.modality} > {self.task} > {self.granularity}"
        return f"{name}: {self.correct:.0f} of {self.questions} right without the image (chance: {self.chance:.0f})"


def majority(written: list[Written]) -> list[Branch]:
    """The whole set and each branch, answered by the option that is most often right where it is offered, as learned from questions about
    other images and patients."""
    return _branches(written, _majority_right)


def by_model(written: list[Written], model: Writer, private: Path, asking: Asking) -> list[Branch]:
    """What `model` gets right of each branch without the images, by the harness's own prompt and reader; a question without an answer that
    can be read counts as wrong. Replies are journalled in `private`."""
    single = [each for each in written if not each.case.is_multiple]
    questions = pd.DataFrame(
        [
            {"question_id": each.case.case, "case_id": each.case.case, "question": each.question, "options": list(each.choice.options),
             "answer": list(each.choice.right), "question_type": "single"}
            for each in single
        ]
    )  # fmt: skip
    if questions.empty:
        return []
    asking = replace(asking, temperature=0)
    answers, _ = replies_without_images(FORMAT, questions, model, private / REPLIES, asking)
    read = read_answers(answers, questions, FORMAT).to_dict("records")
    chosen = {row["question_id"]: tuple(row["choice"]) for row in read if row["status"] == "answered"}
    return _branches(written, lambda own: sum(chosen.get(each.case.case) == each.choice.right for each in own))


def _branches(written: list[Written], right: Callable[[list[Written]], float]) -> list[Branch]:
    """The whole set and a branch per (modality, task, granularity) with single-choice questions. `right`: questions of a branch -> how many
    of them are right."""
    own: dict[Cell, list[Written]] = defaultdict(list)
    for each in written:
        if not each.case.is_multiple:
            own[each.case.cell].append(each)
    if not own:
        return []
    correct = {cell: float(right(questions)) for cell, questions in sorted(own.items())}
    counted = [(("all", "all", "all"), sum(correct.values()), [each for cell in correct for each in own[cell]])]
    counted += [(cell, correct[cell], own[cell]) for cell in correct]
    found = [
        Branch(**asdict(against_chance(count, [each.choice.options for each in questions])),
               modality=cell[0], task=cell[1], granularity=cell[2])
        for cell, count, questions in counted
    ]  # fmt: skip
    adjusted = holm_adjusted(np.array([each.p for each in found]))
    return [
        replace(each, flagged=bool(p <= SIGNIFICANT) and each.is_large) for each, p in zip(found, adjusted, strict=True)
    ]


def check_text_alone(branches: list[Branch], written: list[Written]) -> None:
    """Raise BadInput where the text gives answers away, naming the worst branches and what is most often right there."""
    flagged = [each for each in branches if each.flagged]
    if not flagged:
        return
    worst = max(flagged, key=lambda each: ((each.correct - each.chance) / each.questions, each.task != "all"))
    answers = Counter(
        each.case.answer for each in written
        if not each.case.is_multiple and (worst.task == "all" or each.case.cell == (worst.modality, worst.task, worst.granularity))
    ).most_common(2)  # fmt: skip
    fewer = f", `per_answer: {answers[1][1]}` or" if len(answers) > 1 and answers[1][1] < answers[0][1] else ""
    raise BadInput(
        f"the text alone gives answers away ({'; '.join(str(each) for each in flagged[:3])}; most often right: {answers[0][0]!r}, "
        f"{answers[0][1]} times). Give{fewer} more cases of the other labels, or leave a label out; --accept-text-alone builds it as it is."
    )


def _majority_right(own: list[Written]) -> float:
    """How many questions of a branch are right: those of a fold by what the other folds say. No patient or image is in two folds."""
    held = [[each.case.item.patient, *(picture for picture, _ in each.case.item.pictures)] for each in own]
    return text_alone([each.choice.options for each in own], [each.choice.right[0] for each in own], held).correct
