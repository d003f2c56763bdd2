"""Search topics, labels, benchmarks and models, tolerant of misspellings; each hit has its location."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from leaderboard_space.data.topics import fold

MIN_SIMILARITY, MIN_SIMILARITY_OTHER_INITIAL = 0.8, 0.92
"""Minimum similarity (difflib's ratio) of a misspelt word to the word that is meant."""
WHOLE_WORD_SCORE, PREFIX_SCORE, SUBSTRING_SCORE = 3.0, 2.0, 1.2
"""Scores of a word that is found as a whole, as the beginning of another, and inside another."""
MAX_HITS = 12


@dataclass(frozen=True)
class Hit:
    """An entry of the index: name, words, location and address. `weight`: ties go to the larger."""

    name: str
    where: str
    address: str
    words: tuple[str, ...]
    weight: float = 0.0


def search(query: str, hits: Sequence[Hit]) -> list[Hit]:
    """The hits for a query, best first: whole words before beginnings of words before parts of words.

    A query of several words asks for all of them. Where nothing has them all, not even with their spelling corrected, the hits
    that have most of them as whole words are returned. A query without a letter or a digit has no hits.
    """
    words = fold(query).split()
    vocabulary = {word for hit in hits for name in hit.words for word in name.split()}
    matches = _matching_hits(words, hits) or _matching_hits(
        [_correct_spelling(word, vocabulary) for word in words], hits
    )
    if not matches and len(words) > 1:
        long_words = [word for word in dict.fromkeys(words) if len(word) > 3]
        times = Counter(hit for word in long_words for hit in _matching_hits([word], hits, WHOLE_WORD_SCORE))
        matches = sorted(times, key=lambda hit: -times[hit])
    return matches[:MAX_HITS]


def _matching_hits(words: Sequence[str], hits: Sequence[Hit], minimum: float = SUBSTRING_SCORE) -> list[Hit]:
    """The hits that have all words, best first, one per address. `minimum`: the lowest score to return."""
    scored = [(score, hit) for hit in hits if (score := _score(words, hit)) >= minimum]
    if any(score >= PREFIX_SCORE for score, _ in scored):  # parts of words count only if no word begins so
        scored = [(score, hit) for score, hit in scored if score >= PREFIX_SCORE]
    best: dict[str, Hit] = {}
    for _, hit in sorted(scored, key=lambda item: (-item[0], -item[1].weight, item[1].name.lower())):
        best.setdefault(hit.address, hit)
    return list(best.values())


def _score(words: Sequence[str], hit: Hit) -> float:
    """Relevance of a hit: the score of the word that matches least, more for a larger share of a name; 0 if a word does not match."""
    best = 0.0
    for rank, name in enumerate(hit.words):
        if words and name.replace(" ", "") == "".join(words):  # "gpt 4 o" is GPT-4o
            return 4.0
        lowest = min((_word_score(word, name.split()) for word in words), default=0.0)
        share = 0.2 * len(words) / (len(name.split()) + 1)
        best = max(best, lowest and lowest + share - 0.01 * min(rank, 9))
    return best


def _word_score(word: str, others: Sequence[str]) -> float:
    if word in others:
        return WHOLE_WORD_SCORE
    if any(other.startswith(word) for other in others):
        return PREFIX_SCORE
    return SUBSTRING_SCORE if len(word) > 2 and any(word in other for other in others) else 0.0


def _correct_spelling(word: str, vocabulary: Collection[str]) -> str:
    """The word, or the beginning of a longer one, that is most similar to a misspelt one. Medical words share their endings: one
    with another first letter must be more similar."""
    if len(word) < 4:
        return word
    candidates = {start for other in vocabulary for start in (other, other[: len(word)]) if len(other) > 2}
    same_initial = [candidate for candidate in candidates if candidate[0] == word[0]]
    nearest = get_close_matches(word, same_initial, 1, MIN_SIMILARITY)
    nearest = nearest or get_close_matches(word, candidates, 1, MIN_SIMILARITY_OTHER_INITIAL)
    return nearest[0] if nearest else word
