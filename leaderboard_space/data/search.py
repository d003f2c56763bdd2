"""Search topics, labels, benchmarks and models, tolerant of misspellings; each hit has its location."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from leaderboard_space.data.topics import fold

CLOSE, VERY_CLOSE = 0.8, 0.92
"""Minimum similarity (difflib's ratio) of two words to count as a typo."""
SPELT = 1.5
"""The score from which on a hit holds the words as they are spelt, or words that begin so; below, only parts of words, or slips."""
WHOLE_WORDS = 2.9
"""The score above which a hit holds the words whole."""
MOST = 12


@dataclass(frozen=True)
class Hit:
    """An entry of the index: name, words, location and address. `weight`: ties go to the larger."""

    name: str
    where: str
    address: str
    words: tuple[str, ...]
    weight: float = 0.0


def search(query: str, hits: Sequence[Hit], most: int = MOST) -> list[Hit]:
    """The hits for a query, best first: whole words before beginnings of words before parts before typos. A query of several
    words asks for all of them; where nothing has them all, for what has most of them. Nothing for a query without a letter or a digit."""
    wanted = fold(query).split()
    if not wanted:
        return []
    found = _all_words(wanted, hits)
    if not found and len(wanted) > 1:
        times = Counter(
            hit for word in dict.fromkeys(wanted) if len(word) > 3 for hit in _all_words([word], hits, WHOLE_WORDS)
        )
        found = sorted(times, key=lambda hit: -times[hit])
    return found[:most]


def _all_words(wanted: Sequence[str], hits: Sequence[Hit], least: float = 0.0) -> list[Hit]:
    """What has all of the words, best first, an address once; `least`: the score it must have."""
    vocabulary = {word for hit in hits for named in hit.words for word in named.split()}
    close = {word: _close(word, vocabulary) for word in wanted}
    scored = [(_score(wanted, hit, close), hit) for hit in hits]
    found = [(score, hit) for score, hit in scored if score > least]
    spelt = [item for item in found if item[0] >= SPELT]
    found = spelt or found  # typos count only if no word matches or begins so
    found.sort(key=lambda item: (-item[0], -item[1].weight, item[1].name.lower()))
    first: dict[str, Hit] = {}
    for _, hit in found:
        first.setdefault(hit.address, hit)
    return list(first.values())


def _score(wanted: Sequence[str], hit: Hit, close: dict[str, dict[str, float]]) -> float:
    """Relevance of a hit; 0 if it does not match, below 1 if only with a typo."""
    best = 0.0
    whole = " ".join(wanted)
    for rank, named in enumerate(hit.words):
        if named.replace(" ", "") == whole.replace(" ", ""):  # "gpt 4 o" is GPT-4o
            return 4.0
        words = named.split()
        grades = [_grade(word, words, close) for word in wanted]
        if all(grades):
            mean = min(grades) + 0.2 * len(wanted) / (len(words) + 1)
            best = max(best, mean if min(grades) < 1 else mean - 0.01 * min(rank, 9))
    return min(best, 0.99) if best > 0 and best < 1 else best


def _grade(word: str, words: Iterable[str], close: dict[str, dict[str, float]]) -> float:
    held = list(words)
    if word in held:
        return 3.0
    if any(other.startswith(word) for other in held):
        return 2.0
    if len(word) > 2 and any(word in other for other in held):
        return 1.2
    return 0.7 * max((close[word].get(other, 0.0) for other in held), default=0.0)


def _close(word: str, vocabulary: set[str]) -> dict[str, float]:
    """Words that may be meant by a misspelt one, with how alike they are; also by the beginning of a longer word. Medical words share their
    endings: one that begins with another letter must be more alike."""
    if len(word) < 4:
        return {}
    found: dict[str, float] = {}
    matcher = difflib.SequenceMatcher(b=word, autojunk=False)
    for other in vocabulary:
        least = CLOSE if other[0] == word[0] else VERY_CLOSE
        for cut in {other, other[: len(word)]} if len(other) > 2 else ():
            matcher.set_seq1(cut)
            if matcher.quick_ratio() >= least and (like := matcher.ratio()) >= least:
                found[other] = max(found.get(other, 0.0), like)
    return found
