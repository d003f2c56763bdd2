"""Group cases that share images or patients and must stay in one split."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from scipy.cluster.hierarchy import DisjointSet

from dataset_builders.schema import Case

T = TypeVar("T")


def group_linked_cases(cases: Sequence[Case], *, images: bool, groups: bool) -> list[list[Case]]:
    """Group cases that share images, or whose images share a patient, study or article.

    Args:
        cases: the cases to group.
        images: link cases that show the same image.
        groups: link cases whose images have the same `group`; an image without one links nothing.

    Returns:
        Connected components, in the order of their first case.
    """

    def link_keys(case: Case) -> list[tuple[str, str]]:
        images_linked = [("image", image.image_id) for image in case.images if images]
        return images_linked + [("group", image.group) for image in case.images if groups and image.group]

    return connected_components(cases, link_keys)


def find_split_overlaps(splits: Mapping[str, Iterable[str | None]]) -> dict[str, list[str]]:
    """Find values that occur in more than one split.

    Args:
        splits: split -> values, such as patient ids; empty values are ignored.

    Returns:
        Value -> the splits that contain it.
    """
    splits_by_value: dict[str, list[str]] = {}
    for split, values in splits.items():
        for value in dict.fromkeys(filter(None, values)):
            splits_by_value.setdefault(value, []).append(split)

    return {value: names for value, names in splits_by_value.items() if len(names) > 1}


def format_overlaps(values: Mapping[str, Sequence[str]]) -> str:
    """Format how many values of `find_split_overlaps` are in which splits."""
    counts = Counter(" and ".join(splits) for splits in values.values())
    return "; ".join(f"{count} in {names}" for names, count in counts.items())


def connected_components(cases: Sequence[T], keys_of: Callable[[T], Iterable[Hashable]]) -> list[list[T]]:
    """Group elements that have a key in common, directly or through other elements.

    Args:
        cases: the elements.
        keys_of: returns the keys of an element.

    Returns:
        Connected components, in the order of their first element.
    """
    # Union-find over positions: two cases are linked through the first case that has the same key.
    sets, first_index = DisjointSet(range(len(cases))), dict[Hashable, int]()
    for number, case in enumerate(cases):
        for key in keys_of(case):
            sets.merge(number, first_index.setdefault(key, number))

    groups: dict[int, list[T]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(sets[number], []).append(case)

    return list(groups.values())
