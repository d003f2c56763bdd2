"""What the text alone gives away, per branch of the tree: a rule that answers with the option most often right in the other questions
of the branch, against chance. See also: a language model without images (`medprobe eval --model baseline:text-only:MODEL`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from curation.gmai.written import Written

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
    branches: dict[tuple[str, str, str], list[Written]] = defaultdict(list)
    for each in written:
        if not each.case.is_multiple:
            branches[each.case.cell].append(each)
    return [_score(cell, own) for cell, own in sorted(branches.items())]


def _score(cell: tuple[str, str, str], own: list[Written]) -> Branch:
    from scipy.stats import poisson_binom

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
    chances = [1 / len(each.choice.options) for each in own]
    p = float(poisson_binom.sf(int(correct) - 1, chances)) if correct else 1.0
    return Branch(*cell, len(own), correct, sum(chances), min(1.0, p))
