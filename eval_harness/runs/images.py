"""Choose the images shown with a question.

They are its own (`real`), none (`withheld`), grey ones (`blank`), or those of another case
(`swapped`). See also: measuring how much of a score depends on the images (`scores/sight.py`).
"""

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
"""Columns that name the kind of image of a case; the first one that a benchmark has is used."""


# A small cache suffices, as questions about one image are adjacent.
@lru_cache(maxsize=8)
def blank_image(image: bytes) -> bytes:
    """Return a PNG of the same size filled with the image's mean grey level.

    Bytes that cannot be decoded are returned unchanged, so that they fail as in any other run.
    """
    from PIL import Image

    try:
        grey = np.asarray(make_picture(image).pixels.convert("L"))
    except ImageError:
        return image
    return encode_png(Image.new("RGB", grey.shape[::-1], (round(float(grey.mean())),) * 3))


@dataclass(frozen=True)
class Partners:
    """The partner of each case of a split: the case whose images it shows.

    Attributes:
        partner_by_case: Case -> its partner.
        images: Case -> its image ids, in the order of its questions.
    """

    partner_by_case: Mapping[str, str]
    images: Mapping[str, tuple[str, ...]]

    def partner_image(self, case: str, image: str) -> str:
        """Return the partner's image that replaces `image`.

        If the partner has fewer images, they are repeated.
        """
        partner_images = self.images[self.partner_by_case[case]]
        return partner_images[self.images[case].index(image) % len(partner_images)]

    def check(self, cases: Sequence[str]) -> None:
        """Raise BadInput if one of these cases has no partner."""
        without_partner = [case for case in dict.fromkeys(cases) if case not in self.partner_by_case]
        if without_partner:
            raise BadInput(
                f"--image swapped: {len(without_partner)} case(s) ({without_partner[0]} ...) have "
                "no other case with another answer, image and patient to take "
                "an image from. Leave this run out, or give a larger dataset."
            )


def assign_partners(questions: pd.DataFrame) -> Partners:
    """Assign to every case of a split a partner with a different key, whose images it shows.

    A case and its partner share no image or patient, and are of the same kind
    (`IMAGE_KIND_COLUMNS`) if the benchmark labels kinds. Partners depend only on the split, so they
    are the same for every model, run and selection.

    The cases of a kind form a ring in which those with the same key are adjacent, otherwise in an
    order drawn from their ids. If the most frequent key has m cases, the partner is the case m
    places ahead, so that the images of every case are used once. If m is more than half of the
    cases, the images of cases with other keys are used several times. If all cases of a kind have
    the same key, their partners are of another kind.

    The key of a case is the texts of the correct options in the order of its questions; for a
    yes/no question it includes the question. A hidden key differs from every other.

    Args:
        questions: all questions of the split (config `questions`).

    Returns:
        The partners; a case without any possible partner is left out.
    """
    facts = _facts(questions)
    partner_by_case: dict[str, str | None] = {}
    for kind in dict.fromkeys(fact.kind for fact in facts.values()):
        partner_by_case |= _in_ring([case for case, fact in facts.items() if fact.kind == kind], facts)
    # Cases without a partner of their own kind get one of any kind.
    if None in partner_by_case.values():
        any_kind = _in_ring(list(facts), facts)
        partner_by_case = {case: partner or any_kind[case] for case, partner in partner_by_case.items()}
    assigned = {case: partner for case, partner in partner_by_case.items() if partner is not None}
    return Partners(assigned, {case: fact.images for case, fact in facts.items()})


@dataclass(frozen=True)
class _Fact:
    kind: str
    key: str
    shared: frozenset[str]
    """Image ids and patients of the case, which its partner must not have."""
    images: tuple[str, ...]


def _facts(questions: pd.DataFrame) -> dict[str, _Fact]:
    """Return the kind, key, images and patients of each case."""
    label = next((name for name in IMAGE_KIND_COLUMNS if name in questions.columns), None)
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in questions.to_dict("records"):
        rows.setdefault(row["case_id"], []).append({str(name): value for name, value in row.items()})
    facts: dict[str, _Fact] = {}
    for case, case_rows in rows.items():
        key = [
            f"{row['question'] if row['question_type'] == 'yes_no' else ''}\0{row['options'][position]}".casefold()
            for row in case_rows
            for position in row["answer"]
        ]
        images = tuple(dict.fromkeys(name for row in case_rows for name in row_image_ids(row)))
        patients = [f"patient\0{row['group']}" for row in case_rows if isinstance(row.get("group"), str)]
        kind = str(case_rows[0][label]) if label else ""
        facts[case] = _Fact(kind, "\n".join(key) or f"hidden\0{case}", frozenset([*images, *patients]), images)
    return facts


def _in_ring(cases: Sequence[str], facts: Mapping[str, _Fact]) -> dict[str, str | None]:
    """Return the partner of each case, None if there is none.

    The cases are sorted by key and form a ring. The search for a partner starts as many places
    ahead as the most frequent key has cases, and takes the first case that has another key and
    shares no image or patient.
    """
    # Hashing the ids gives an arbitrary order that is the same on every machine.
    order = sorted(cases, key=lambda case: (_digest(facts[case].key), _digest(case)))
    cases_per_key = Counter(facts[case].key for case in order)
    max_cases_per_key = max(cases_per_key.values(), default=0)
    key_end = {facts[case].key: position for position, case in enumerate(order, 1)}
    partner_by_case: dict[str, str | None] = {}
    for position, case in enumerate(order):
        fact = facts[case]
        candidates = len(order) - cases_per_key[fact.key]
        offset = position + max_cases_per_key - key_end[fact.key]
        # Walk around the ring, skipping all cases with the same key.
        ring = (order[(key_end[fact.key] + (offset + step) % candidates) % len(order)] for step in range(candidates))
        partner_by_case[case] = next(
            (candidate for candidate in ring if facts[candidate].shared.isdisjoint(fact.shared)), None
        )
    return partner_by_case


def _digest(text: str) -> bytes:
    return hashlib.sha256(f"swapped\0{text}".encode()).digest()
