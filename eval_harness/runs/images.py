"""Choose the images that a run shows: the question's own (`real`), none (`withheld`), grey ones (`blank`), another case's (`swapped`).

See also: what the answers then say of a score (`scores/sight.py`).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.images.lookup import ImageError, encode_png
from dataset_builders.images.picture import make_picture
from dataset_builders.schema import row_image_ids

IMAGE_KIND_COLUMNS = ("image_type", "modality")
"""Columns that say what kind of image a case shows, the first that a benchmark has."""


@lru_cache(maxsize=8)  # the questions on an image come together
def blank_image(image: bytes) -> bytes:
    """A PNG of the same size in the mean grey of the image; what cannot be decoded stays as it is, and fails as it does otherwise."""
    from PIL import Image

    try:
        grey = np.asarray(make_picture(image).pixels.convert("L"))
    except ImageError:
        return image
    return encode_png(Image.new("RGB", grey.shape[::-1], (round(float(grey.mean())),) * 3))


@dataclass(frozen=True)
class Partners:
    """Case -> the case whose images it is shown, for a split; `images`: case -> its image ids, in the order of its questions."""

    of: Mapping[str, str]
    images: Mapping[str, tuple[str, ...]]

    def shown(self, case: str, image: str) -> str:
        """The image of the partner that stands for this image; where the partner has fewer, they come again."""
        others = self.images[self.of[case]]
        return others[self.images[case].index(image) % len(others)]

    def check(self, cases: Sequence[str]) -> None:
        """Raise BadInput where one of these cases has no partner."""
        alone = [case for case in dict.fromkeys(cases) if case not in self.of]
        if alone:
            raise BadInput(
                f"--image swapped: {len(alone)} case(s) ({alone[0]} ...) have no other case with another answer, image and patient to take "
                "an image from. Leave this run out, or give a larger dataset."
            )


def assign_partners(questions: pd.DataFrame) -> Partners:
    """A derangement of the cases of a split: each is shown the images of another case with another key, without a common image or patient,
    of the same kind (LABELS) where that is labelled; the same for every model, run and selection.

    Cases of a kind stand in a ring, those with the same key side by side, in an order drawn by their ids; each takes the images of the
    one that is as far behind it as the most frequent key has cases, so that each case's images are shown once. Where one key has more
    than half of the cases of its kind, those of the others are shown several times; where it has them all, the partner is of another
    kind. A key is the texts of the correct options in the order of the questions, of yes/no ones with the question; a hidden key is
    unlike any other.
    """
    facts = _facts(questions)
    found: dict[str, str | None] = {}
    for kind in dict.fromkeys(fact.kind for fact in facts.values()):
        found |= _in_ring([case for case, fact in facts.items() if fact.kind == kind], facts)
    if None in found.values():  # for these any kind will do
        anywhere = _in_ring(list(facts), facts)
        found = {case: other or anywhere[case] for case, other in found.items()}
    of = {case: other for case, other in found.items() if other is not None}
    return Partners(of, {case: fact.images for case, fact in facts.items()})


@dataclass(frozen=True)
class _Fact:
    kind: str
    key: str
    shared: frozenset[str]
    """Its images and patients."""
    images: tuple[str, ...]


def _facts(questions: pd.DataFrame) -> dict[str, _Fact]:
    """The images and questions of each case."""
    label = next((name for name in IMAGE_KIND_COLUMNS if name in questions.columns), None)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in questions.to_dict("records"):
        rows.setdefault(row["case_id"], []).append({str(name): value for name, value in row.items()})
    found: dict[str, _Fact] = {}
    for case, asked in rows.items():
        key = [
            f"{row['question'] if row['question_type'] == 'yes_no' else ''}\0{row['options'][right]}".casefold()
            for row in asked
            for right in row["answer"]
        ]
        images = tuple(dict.fromkeys(name for row in asked for name in row_image_ids(row)))
        patients = [f"patient\0{row['group']}" for row in asked if isinstance(row.get("group"), str)]
        kind = str(asked[0][label]) if label else ""
        found[case] = _Fact(kind, "\n".join(key) or f"hidden\0{case}", frozenset([*images, *patients]), images)
    return found


def _in_ring(cases: Sequence[str], facts: Mapping[str, _Fact]) -> dict[str, str | None]:
    """Each case's partner among `cases`, which stand in a ring, those of a key side by side: the first one from as many places on as the
    most frequent key has cases, with another key and nothing in common; None where there is none."""
    order = sorted(cases, key=lambda case: (_digest(facts[case].key), _digest(case)))
    count = Counter(facts[case].key for case in order)
    most = max(count.values(), default=0)
    end = {facts[case].key: place for place, case in enumerate(order, 1)}
    found: dict[str, str | None] = {}
    for place, case in enumerate(order):
        fact = facts[case]
        others = len(order) - count[fact.key]
        first = place + most - end[fact.key]
        ring = (order[(end[fact.key] + (first + step) % others) % len(order)] for step in range(others))
        found[case] = next((other for other in ring if facts[other].shared.isdisjoint(fact.shared)), None)
    return found


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"swapped\0{text}".encode()).digest()
