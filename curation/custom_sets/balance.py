"""Draws the absent fact of each pair so that no text pays: every question is right with yes as often as with no.

A pair asks about a fact that an image shows and about one that it rules out. Drawn freely (as ProbMed draws them), frequent facts are
mostly asked where they are true and rare ones where they are not, so that knowing the frequencies is
enough to answer without the image. Here each fact is asked as absent exactly as often as it is asked as present: a
circulation, found by linear programming with random weights.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_CANDIDATES = 24
"""Of more absent facts so many are drawn for each present one; more would change nothing but the time."""
SPARE = 0.2
"""For each question asked in pairs, so many more may be asked of normal images, where the answer is no: 1.2 of 2.2 are "no" then,
54.5 %."""


@dataclass(frozen=True)
class Fact:
    """A fact that an image shows, and the facts that it rules out. `image` and `key` name it; `text` is what is asked about. `near`: those
    of `absent` that images of its organ and modality can show, which are harder to tell and so preferred."""

    image: str
    key: str
    text: str
    absent: tuple[str, ...]
    near: tuple[str, ...] = ()


def balanced_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """(image, key) -> the absent fact to ask about, for as many facts as can be asked in balance: each text as often present as
    absent. The same facts and seed give the same pairs."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    known = {fact.text for fact in facts}
    rng = np.random.default_rng([seed, *hashlib.sha256("\0".join(sorted(known)).encode()).digest()[:8]])
    pairs: list[tuple[int, str]] = []
    for at, fact in enumerate(facts):
        fitting = [text for text in fact.absent if text in known and text != fact.text]
        if len(fitting) > MOST_CANDIDATES:
            order = sorted(rng.permutation(len(fitting)), key=lambda at: fitting[at] not in fact.near)
            fitting = [fitting[at] for at in sorted(order[:MOST_CANDIDATES])]
        pairs += [(at, text) for text in fitting]
    if not pairs:
        return {}
    row = {text: number for number, text in enumerate(sorted(known))}
    columns = np.arange(len(pairs))
    present = np.array([row[facts[at].text] for at, _ in pairs])
    absent = np.array([row[text] for _, text in pairs])
    ones = np.ones(len(pairs))
    flow = csr_array(
        (np.r_[ones, -ones], (np.r_[present, absent], np.r_[columns, columns])), shape=(len(row), len(pairs))
    )
    once = csr_array((ones, ([at for at, _ in pairs], columns)), shape=(len(facts), len(pairs)))
    worth = 1 + 0.01 * rng.random(len(pairs)) + 0.05 * np.array([text in facts[at].near for at, text in pairs])
    found = linprog(
        -worth, A_ub=once, b_ub=np.ones(len(facts)), A_eq=flow, b_eq=np.zeros(len(row)),
        bounds=(0, 1), method="highs-ds",
    )  # type: ignore[call-overload]  # fmt: skip
    if found.status != 0:
        raise RuntimeError(f"the pairs could not be balanced: {found.message}")
    # The constraints are those of a network, so that the corners of its polytope are whole numbers.
    chosen = np.flatnonzero(found.x > 0.5)
    return {(facts[pairs[k][0]].image, facts[pairs[k][0]].key): pairs[k][1] for k in chosen}


def drawn_pairs(facts: Sequence[Fact], seed: int) -> dict[tuple[str, str], str]:
    """(image, key) -> an absent fact drawn at random, as in the paper: not balanced."""
    drawn = {}
    for fact in facts:
        if fact.absent:
            among = fact.near or fact.absent
            drawn[fact.image, fact.key] = among[drawn_number(f"{fact.image} {fact.key}", seed) % len(among)]
    return drawn


def spread(images: Mapping[str, Sequence[str]], times_asked: Mapping[str, int], seed: int) -> dict[str, str]:
    """Image -> a fact to ask about as absent, of those it rules out; each text at most `SPARE` times as often as it is asked in pairs."""
    left = {text: int(SPARE * times) for text, times in times_asked.items()}
    given = {}
    for image in sorted(images, key=lambda name: drawn_number(f"spare {name}", seed)):
        fitting = [text for text in images[image] if left.get(text, 0) > 0]
        if fitting:
            text = max(fitting, key=lambda text: (left[text], drawn_number(f"{image} {text}", seed)))
            given[image] = text
            left[text] -= 1
    return given


def drawn_number(key: str, seed: int) -> int:
    """A number that depends on the key and the seed alone, to order and draw by."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{key}".encode()).digest()[:8])


def text_only(rows: Iterable[Mapping[str, Any]], aspect_of: Mapping[str, str]) -> dict[str, float]:
    """Percent right of a reader without the image who knows how often each question is right with yes in this very set, per aspect and
    `overall`. aspect_of: beginning of `qa_type` -> aspect."""
    answers: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for row in rows:
        aspect = next(name for start, name in aspect_of.items() if row["qa_type"].startswith(start))
        for part in (aspect, "overall"):
            answers[part][row["question"]][row["answer"]] += 1
    return {
        part: round(
            100 * sum(max(said.values()) for said in of.values()) / sum(said.total() for said in of.values()), 1
        )
        for part, of in sorted(answers.items())
    }
