"""What people find wrong with finished questions, and what their text alone gives away."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from curation.gmai import FORMAT
from curation.gmai.cases import Cell
from curation.gmai.selecting import Written
from curation.report.blind_baseline import MARGIN, SIGNIFICANT, replies_without_images, text_alone
from curation.review import page
from curation.review.agreement import gwet_ac1
from curation.writing.asking import Asking, Writer
from dataset_builders.errors import BadInput
from eval_harness.derive.answers import read_answers

LOG, FIELD = "validation.jsonl", "faults"
FAULTS = {
    "wrong": "the marked answer is wrong",
    "unclear": "the target is unclear",
    "poor": "the image is poor",
    "unseen": "answerable without the image",
}


def read_faults(private: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Case -> reviewer -> faults found (none: the reviewer finds it fine). A reviewer's last word holds."""
    said: dict[str, dict[str, tuple[str, ...]]] = defaultdict(dict)
    for (case, _, reviewer), faults in page.recorded(private / LOG).items():
        said[case][reviewer] = tuple(faults)
    return said


def record(private: Path, reviewer: str, case: str, faults: list[str]) -> None:
    """Add one verdict; on the disk when this returns. Raises BadInput for faults that there are not."""
    unknown = [fault for fault in faults if fault not in FAULTS]
    if unknown:
        raise BadInput(f"{unknown[0]!r} is not a known fault; choose from {', '.join(FAULTS)}.")
    page.record(private / LOG, reviewer, case, FIELD, [fault for fault in FAULTS if fault in faults])


def dropped(said: dict[str, dict[str, tuple[str, ...]]]) -> dict[str, str]:
    """Case -> the first fault found, of cases that anybody finds fault with."""
    return {
        case: next(faults[0] for _, faults in sorted(reviews.items()) if faults)
        for case, reviews in said.items()
        if any(reviews.values())
    }


def summary(said: dict[str, dict[str, tuple[str, ...]]], asked: Set[str]) -> dict[str, Any]:
    """Verdicts, how many of the questions `asked` a person has checked, drops by fault, and the agreement of keep or drop (Gwet's AC1; None
    with fewer than two reviewers on a case)."""
    reviewers = sorted({reviewer for reviews in said.values() for reviewer in reviews})
    ratings = np.array(
        [[(not reviews[who]) if who in reviews else None for who in reviewers] for reviews in said.values()],
        dtype=object,
    ).reshape(len(said), len(reviewers))
    return {
        "validated": len(said),
        "validated_questions": len(asked & said.keys()),
        "reviewers": len(reviewers),
        "dropped": dict(Counter(dropped(said).values())),
        "agreement_ac1": gwet_ac1(ratings) if said else None,
    }


# What the text alone gives away

REPLIES = "blind.jsonl"


@dataclass(frozen=True)
class Branch:
    """Scores without images on the single-choice questions of one (modality, task, granularity), or of the whole set ("all")."""

    modality: str
    task: str
    granularity: str
    questions: int
    correct: float
    """expected number right; a tie of k options counts 1/k"""
    chance: float
    """expected number right of a uniform guess"""
    p: float
    """of so many right or more by chance"""
    flagged: bool = False
    """The text gives answers away."""

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
    from scipy.stats import poisson_binom
    from statsmodels.stats.multitest import multipletests

    own: dict[Cell, list[Written]] = defaultdict(list)
    for each in written:
        if not each.case.is_multiple:
            own[each.case.cell].append(each)
    if not own:
        return []
    counted = {cell: (questions, float(right(questions))) for cell, questions in sorted(own.items())}
    everything = [each for questions, _ in counted.values() for each in questions]
    counted = {("all", "all", "all"): (everything, sum(correct for _, correct in counted.values())), **counted}
    found = []
    for cell, (questions, correct) in counted.items():
        chances = [1 / len(each.choice.options) for each in questions]
        # A tie counts its share: rounding down keeps the test from saying more than it can.
        p = float(poisson_binom.sf(int(correct + 1e-9) - 1, chances))
        found.append(Branch(*cell, len(questions), correct, sum(chances), min(1.0, p)))
    is_significant = multipletests([each.p for each in found], SIGNIFICANT, "holm")[0]
    return [
        replace(each, flagged=bool(is_one) and each.correct - each.chance >= MARGIN * each.questions)
        for each, is_one in zip(found, is_significant, strict=True)
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
