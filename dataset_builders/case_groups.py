"""Group cases that share images or patients, which must not be separated."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from scipy.cluster.hierarchy import DisjointSet

from dataset_builders.schema import Case

T = TypeVar("T")


def sharing(cases: Sequence[Case], *, images: bool, groups: bool) -> list[list[Case]]:
    """The connected components of cases that share images, or whose images share a group (patient, study, article), in order of their
    first case; an image without a group is alone."""

    def held(case: Case) -> list[tuple[str, str]]:
        shown = [("image", image.image_id) for image in case.images if images]
        return shown + [("group", image.group) for image in case.images if groups and image.group]

    return connected(cases, held)


def in_several_splits(splits: dict[str, list[Case]]) -> dict[str, list[str]]:
    """Group -> the splits it is in, of groups that are in more than one."""
    found: dict[str, list[str]] = {}
    for split, cases in splits.items():
        for group in dict.fromkeys(image.group for case in cases for image in case.images if image.group):
            found.setdefault(group, []).append(split)
    return {group: names for group, names in found.items() if len(names) > 1}


def connected(cases: Sequence[T], held: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """The connected components of what holds something in common, in order of their first member."""
    sets, first = DisjointSet(range(len(cases))), dict[Hashable, int]()
    for number, case in enumerate(cases):
        for thing in held(case):
            sets.merge(number, first.setdefault(thing, number))
    groups: dict[int, list[T]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(sets[number], []).append(case)
    return list(groups.values())
