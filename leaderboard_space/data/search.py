"""Search topics, labels, benchmarks and models, tolerant of misspellings; each hit has its
location.
"""

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
    """An entry of the search index.

    `location`: where it leads, in words; `weight`: ties go to the larger.
    """

    name: str
    location: str
    address: str
    words: tuple[str, ...]
    weight: float = 0.0


def search(query: str, hits: Sequence[Hit]) -> list[Hit]:
    """Search the index.

    A query of several words matches the entries that have all of them. If there are none, even with
    corrected spelling, it matches those that have the most of its words as whole words.

    Args:
        query: What a visitor typed.
        hits: The index.

    Returns:
        At most MAX_HITS entries, best first: whole words before prefixes before substrings. Empty
        for a query without letters or digits.
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
    """Find the entries that have all words, with a score of at least `minimum`: best first, one per
    address.
    """
    scored = [(score, hit) for hit in hits if (score := _score(words, hit)) >= minimum]
    if any(score >= PREFIX_SCORE for score, _ in scored):  # substrings count only if there is no better match
        scored = [(score, hit) for score, hit in scored if score >= PREFIX_SCORE]
    best: dict[str, Hit] = {}
    for _, hit in sorted(scored, key=lambda item: (-item[0], -item[1].weight, item[1].name.lower())):
        best.setdefault(hit.address, hit)
    return list(best.values())


def _score(words: Sequence[str], hit: Hit) -> float:
    """Score the relevance of an entry: its lowest word score, plus a bonus for covering more of a
    name.

    The score is 0 if a word is missing.
    """
    best = 0.0
    for rank, name in enumerate(hit.words):
        if words and name.replace(" ", "") == "".join(words):  # "gpt 4 o" is GPT-4o
            return 4.0
        lowest = min((_word_score(word, name.split()) for word in words), default=0.0)
        share = 0.2 * len(words) / (len(name.split()) + 1)
        best = max(best, lowest and lowest + share - 0.01 * min(rank, 9))
    return best


def _word_score(word: str, name_words: Sequence[str]) -> float:
    if word in name_words:
        return WHOLE_WORD_SCORE
    if any(name_word.startswith(word) for name_word in name_words):
        return PREFIX_SCORE
    return SUBSTRING_SCORE if len(word) > 2 and any(word in name_word for name_word in name_words) else 0.0


def _correct_spelling(word: str, vocabulary: Collection[str]) -> str:
    """Return the known word, or beginning of one, that is most similar to a misspelt word.

    Many medical words share an ending, so a candidate with a different first letter must be more
    similar.
    """
    if len(word) < 4:
        return word
    candidates = {
        start for known_word in vocabulary for start in (known_word, known_word[: len(word)]) if len(known_word) > 2
    }
    same_initial = [candidate for candidate in candidates if candidate[0] == word[0]]
    nearest = get_close_matches(word, same_initial, 1, MIN_SIMILARITY)
    nearest = nearest or get_close_matches(word, candidates, 1, MIN_SIMILARITY_OTHER_INITIAL)
    return nearest[0] if nearest else word
