"""What the text of questions gives away: how many are right with the option that is most often right elsewhere in the set."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from dataset_builders.case_groups import connected

FOLDS = 10
SIGNIFICANT, MARGIN = 0.05, 0.05
"""The text gives answers away where it is right more often than chance by a margin of 5 points, and a one-sided exact test says so."""


@dataclass(frozen=True)
class TextAlone:
    """`correct`: expected number right of `questions` (a tie of k options counts 1/k); `chance`: that of a uniform guess; `p`: of so many
    right or more by chance."""

    questions: int
    correct: float
    chance: float
    p: float

    @property
    def gives_away(self) -> bool:
        return self.p <= SIGNIFICANT and self.correct - self.chance >= MARGIN * self.questions

    def __str__(self) -> str:
        return f"{self.correct:.0f} of {self.questions} right without the image, where {self.chance:.0f} are by chance"


def text_alone(options: Sequence[Sequence[str]], right: Sequence[int], held: Sequence[Iterable[Hashable]]) -> TextAlone:
    """Questions of one right option each, answered by what the other folds say. held: image, patient ... of each question; what shares one
    is in one fold."""
    from scipy.stats import poisson_binom

    names = [[" ".join(option.casefold().split()) for option in shown] for shown in options]
    parts = connected(range(len(names)), lambda at: held[at])
    parts.sort(key=lambda part: hashlib.sha256(f"fold {min(part)}".encode()).digest())
    chance = sum(1 / len(shown) for shown in names)
    was_right = Counter(shown[at] for shown, at in zip(names, right, strict=True))
    was_offered = Counter(name for shown in names for name in shown)
    correct = 0.0
    for number in range(FOLDS):
        fold = [at for part in parts[number::FOLDS] for at in part]
        right_here = Counter(names[at][right[at]] for at in fold)
        offered_here = Counter(name for at in fold for name in names[at])
        for at in fold:
            rates = [
                (was_right[name] - right_here[name] + chance / len(names))
                / (was_offered[name] - offered_here[name] + 1)
                for name in names[at]
            ]
            best = [k for k, rate in enumerate(rates) if rate >= max(rates) - 1e-12]
            correct += (right[at] in best) / len(best)
    # A tie counts its share: rounding down keeps the test from saying more than it can.
    p = float(poisson_binom.sf(int(correct + 1e-9) - 1, [1 / len(shown) for shown in names]))
    return TextAlone(len(names), correct, chance, min(1.0, p))
