"""Group cases that share images or patients, which must not be separated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from scipy.cluster.hierarchy import DisjointSet

from dataset_builders.schema import Case

T = TypeVar("T")


def group_linked_cases(cases: Sequence[Case], *, images: bool, groups: bool) -> list[list[Case]]:
    """The connected components of cases that share images, or whose images share a group (patient, study, article), in order of their
    first case; an image without a group is alone."""

    def held(case: Case) -> list[tuple[str, str]]:
        shown = [("image", image.image_id) for image in case.images if images]
        return shown + [("group", image.group) for image in case.images if groups and image.group]

    return connected_components(cases, held)


def find_split_overlaps(splits: Mapping[str, Iterable[str | None]]) -> dict[str, list[str]]:
    """Value -> the splits it is in, of values (groups, pictures) that are in more than one. Empty values count as none."""
    where: dict[str, list[str]] = {}
    for split, values in splits.items():
        for value in dict.fromkeys(filter(None, values)):
            where.setdefault(value, []).append(split)
    return {value: names for value, names in where.items() if len(names) > 1}


def format_overlaps(values: Mapping[str, Sequence[str]]) -> str:
    """How many values of `find_split_overlaps` are in which splits, in words."""
    counts = Counter(" and ".join(splits) for splits in values.values())
    return "; ".join(f"{count} in {names}" for names, count in counts.items())


def connected_components(cases: Sequence[T], held: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """The connected components of what holds something in common, in order of their first member."""
    sets, first = DisjointSet(range(len(cases))), dict[Hashable, int]()
    for number, case in enumerate(cases):
        for thing in held(case):
            sets.merge(number, first.setdefault(thing, number))
    groups: dict[int, list[T]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(sets[number], []).append(case)
    return list(groups.values())
