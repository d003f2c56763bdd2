"""Halves of MediConfusion for fine-tuning, after appendix D: half of the pairs of each category, no pair split.

The authors' own halves are not published (84 and 92 pairs); these are drawn anew, the same ones every time. Because one image can be in
many pairs, pairs of both halves may share images; `finetune_disjoint` keeps all pairs that share an image in one half. A patient (or
whatever `group` says belongs together) is in one half only, in both configs.
"""

from __future__ import annotations

import hashlib
from collections import Counter

from dataset_builders.case_groups import sharing
from dataset_builders.schema import Case

SEED = "medprobe finetune 1"


def halves(cases: list[Case]) -> dict[str, dict[str, list[Case]]]:
    """Configs `finetune` and `finetune_disjoint`, each with splits train and test; left out where a half would be empty."""
    made = {}
    for config, images in (("finetune", False), ("finetune_disjoint", True)):
        train = _choose(sharing(cases, images=images, groups=True))
        split = {
            "train": [case for case in cases if case.case_id in train],
            "test": [case for case in cases if case.case_id not in train],
        }
        if all(split.values()):
            made[config] = split
    return made


def _choose(groups: list[list[Case]]) -> set[str]:
    """The cases to train on: group by group, largest first, to the half that keeps every category nearest to half and half."""
    labels = [Counter(label for case in group for label in _categories(case)) for group in groups]
    order = sorted(range(len(groups)), key=lambda n: (-len(groups[n]), _draw(groups[n][0])))
    balance: Counter[str] = Counter()
    size = 0
    train: set[str] = set()
    for number in order:
        tilt = sum(balance[label] * count for label, count in labels[number].items())
        to_train = tilt < 0 or (tilt == 0 and (size < 0 or (size == 0 and _draw(groups[number][0]) % 2 == 0)))
        sign = 1 if to_train else -1
        for label, count in labels[number].items():
            balance[label] += sign * count
        size += sign * len(groups[number])
        if to_train:
            train.update(case.case_id for case in groups[number])
    return train


def _categories(case: Case) -> set[str]:
    return {label for question in case.questions for label in question.categories}


def _draw(case: Case) -> int:
    """A number drawn for the case: the same on every machine."""
    return int.from_bytes(hashlib.sha256(f"{SEED} {case.case_id}".encode()).digest()[:8], "big")
