"""The wrong options of each case: pools, what may not be in them, how many are drawn, and where the right one stands."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from curation.gmai.cases import Candidate, Cell
from curation.gmai.labels import LabelTable
from curation.gmai.sources import IMAGE, Sources
from dataset_builders.terms import folded


@dataclass(frozen=True)
class OptionSet:
    """The options of a case and the positions of the right ones (0-based)."""

    options: tuple[str, ...]
    right: tuple[int, ...]


class Pools:
    """Labels that can be options: of the same dataset at image level, of the same (modality, task, granularity) at region level."""

    def __init__(self, cases: Iterable[Candidate], table: LabelTable) -> None:
        self.table = table
        self._of_dataset: dict[tuple[str, Cell], set[str]] = defaultdict(set)
        self._of_cell: dict[Cell, set[str]] = defaultdict(set)
        for case in cases:
            for name in case.answers:
                self._of_dataset[case.item.dataset, case.cell].add(name)
                self._of_cell[case.cell].add(name)

    def of(self, case: Candidate) -> list[str]:
        """Every label that can be a wrong option of this case, in order of name."""
        names = (
            self._of_dataset[case.item.dataset, case.cell] if case.granularity == IMAGE else self._of_cell[case.cell]
        )
        return sorted(name for name in names if self.reason_against(name, case) is None)

    def reason_against(self, name: str, case: Candidate) -> str | None:
        """Why a label cannot be a wrong option of a case; None where it can.

        At region level other labels of the image stay: an answerer that ignores the mark has to choose among them.
        """
        if name in case.answers:
            return "is the answer"
        if case.granularity != IMAGE:
            if name in case.unsure or any(self.table.related(name, each) for each in case.overlapping):
                return "lies where the target lies"
            if any(self.table.related(name, each) or _within(name, each) for each in case.answers):
                return "is a synonym of, above or below the answer"
            return None
        if name in case.present or name in case.unsure:
            return "is or may be on the image"
        if any(self.table.related(name, each) for each in (*case.answers, *case.present)):
            return "is a synonym of, above or below a label of the image"
        if not self.table.can_be_shown(name, case.modality, case.regions):
            return "cannot be on this image: another modality or region of the body"
        return None


def _within(one: str, other: str) -> bool:
    """True if all words of one label are among the other's: a marked kidney tumour lies in a kidney."""
    first, second = set(folded(one).split()), set(folded(other).split())
    return first <= second or second <= first


def compatible(names: Iterable[str], table: LabelTable) -> bool:
    """True if no two labels are related: options of one question must exclude one another."""
    listed = list(names)
    return not any(table.related(one, other) for at, one in enumerate(listed) for other in listed[at + 1 :])


class Drawer:
    """Draws options with a seed; letters are balanced over the questions of a split with the same number of options."""

    def __init__(self, sources: Sources, pools: Pools, frequency: Counter[tuple[Cell, str]]) -> None:
        """frequency: how often a label is an answer in its cell. A label is drawn as a wrong option in proportion to it, so that what is
        often right is often wrong, too, and the text alone says nothing."""
        self.sources, self.pools, self.frequency = sources, pools, frequency
        self.used: Counter[tuple[str, bool, int, int]] = Counter()

    def draw(self, case: Candidate, split: str) -> OptionSet | None:
        """The options of a case; None where the pool leaves fewer than two, or where five do not hold a wrong one. At region level one of
        the wrong ones is on the image, where any may be: else the mark would not be needed."""
        rng = random.Random(f"options {case.order}")
        fewest, most = self.sources.options
        answers = list(case.answers)
        if len(answers) + 1 > most:
            return None
        wanted = max(rng.randint(fewest, most), len(answers) + 1) - len(answers)
        wrong: list[str] = []
        names = self._in_drawn_order(self.pools.of(case), case, rng)
        here = next((name for name in names if case.granularity != IMAGE and name in case.present), None)
        for name in [*([here] if here else []), *(name for name in names if name != here)]:
            if len(wrong) < wanted and compatible([*wrong, name], self.pools.table):
                wrong.append(name)
        if not wrong or len(wrong) + len(answers) < fewest:
            return None
        return self._placed(case, answers, wrong, split, rng)

    def _in_drawn_order(self, names: list[str], case: Candidate, rng: random.Random) -> list[str]:
        """Weighted sampling without replacement (Efraimidis and Spirakis 2006): the largest u ** (1 / weight) first."""
        drawn = {name: rng.random() ** (1 / max(self.frequency[case.cell, name], 1)) for name in names}
        return sorted(names, key=lambda name: -drawn[name])

    def _placed(
        self, case: Candidate, answers: list[str], wrong: list[str], split: str, rng: random.Random
    ) -> OptionSet:
        size = len(answers) + len(wrong)
        positions = list(range(size))
        rng.shuffle(positions)
        positions.sort(key=lambda at: self.used[split, case.is_multiple, size, at])
        right = positions[: len(answers)]
        self.take(case, split, size, right)
        rng.shuffle(answers)
        rng.shuffle(wrong)
        options = [""] * size
        for at, name in zip([*right, *sorted(set(range(size)) - set(right))], [*answers, *wrong], strict=True):
            options[at] = name
        return OptionSet(tuple(options), tuple(sorted(right)))

    def take(self, case: Candidate, split: str, size: int, right: Iterable[int]) -> None:
        """Count the letters of a question that stands already."""
        self.used.update((split, case.is_multiple, size, at) for at in right)

    def still_stands(self, case: Candidate, choice: OptionSet) -> bool:
        """True if options that were drawn in an earlier run are still right: the same answers, and wrong ones that may be."""
        right = {choice.options[at] for at in choice.right}
        wrong = [name for name in choice.options if name not in right]
        allowed = set(self.pools.of(case))
        return (
            right == set(case.answers)
            and set(wrong) <= allowed
            and self.sources.options[0] <= len(choice.options) <= self.sources.options[1]
            and bool(wrong)
        )
