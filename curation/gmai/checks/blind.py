"""What the text alone gives away, per branch of the tree, against chance: a rule that answers with the option most often right in the other
questions of the branch, and a language model that is shown no image.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from curation.gmai import FORMAT
from curation.gmai.asking.written import Written
from curation.gmai.cases import Cell
from curation.report.blind_baseline import replies_without_images
from curation.writing.asking import Asking, Writer
from eval_harness.answers import read_answers

REPLIES = "blind.jsonl"
FLAGGED = 0.01
"""The probability under chance (one-sided) below which a branch is flagged."""


@dataclass(frozen=True)
class Branch:
    """The rule's score on the single-choice questions of one (modality, task, granularity)."""

    modality: str
    task: str
    granularity: str
    questions: int
    correct: float
    """expected number right; a tie of k options counts 1/k"""
    chance: float
    """expected number right of a uniform guess"""
    p: float

    @property
    def is_flagged(self) -> bool:
        return self.p < FLAGGED


def majority(written: list[Written]) -> list[Branch]:
    """The text-only majority of each branch, each question judged by the questions of other patients alone."""
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
    """A branch per (modality, task, granularity) with single-choice questions. `right`: questions -> how many of them are right."""
    from scipy.stats import poisson_binom

    own: dict[Cell, list[Written]] = defaultdict(list)
    for each in written:
        if not each.case.is_multiple:
            own[each.case.cell].append(each)
    found = []
    for cell, questions in sorted(own.items()):
        correct = float(right(questions))
        chances = [1 / len(each.choice.options) for each in questions]
        p = float(poisson_binom.sf(int(correct) - 1, chances)) if correct else 1.0
        found.append(Branch(*cell, len(questions), correct, sum(chances), min(1.0, p)))
    return found


def _majority_right(own: list[Written]) -> float:
    right: Counter[str] = Counter()
    offered: Counter[str] = Counter()
    of_patient: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for each in own:
        answer = each.choice.options[each.choice.right[0]]
        for counter, names in ((right, [answer]), (offered, each.choice.options)):
            counter.update(names)
        of_patient[each.case.item.patient][0].update([answer])
        of_patient[each.case.item.patient][1].update(each.choice.options)
    correct = 0.0
    for each in own:
        mine = of_patient[each.case.item.patient]
        rates = []
        for name in each.choice.options:
            times = offered[name] - mine[1][name]
            rates.append((right[name] - mine[0][name]) / times if times else 0.0)
        best = [at for at, rate in enumerate(rates) if rate == max(rates)]
        correct += (each.choice.right[0] in best) / len(best)
    return correct
