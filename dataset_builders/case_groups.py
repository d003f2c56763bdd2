"""Cases that cannot be treated apart because they share images."""

from __future__ import annotations

from dataset_builders.schema import Case


def sharing_images(cases: list[Case]) -> list[list[Case]]:
    """The connected components of cases that share images, in order of their first case."""
    owner: dict[str, int] = {}
    groups: list[list[Case] | None] = []
    for case in cases:
        touched = sorted({owner[image.image_id] for image in case.images if image.image_id in owner})
        merged: list[Case] = []
        for number in touched:
            merged.extend(groups[number] or [])
            groups[number] = None
        merged.append(case)
        place = touched[0] if touched else len(groups)
        if touched:
            groups[place] = merged
        else:
            groups.append(merged)
        for member in merged:
            owner.update((image.image_id, place) for image in member.images)
    return [group for group in groups if group]
