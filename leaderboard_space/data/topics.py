"""Map topics that visitors look for ("MRI", "Ophthalmology") to the labels of each benchmark, and
search an index of topics, labels, benchmarks and models, tolerant of misspellings.

The modalities and departments of the vocabulary (`dataset_builders/terms.csv`) are the known
topics: `synonyms` are words for the topic itself, `related` are overlapping labels. A label that
fits no topic becomes a topic of its own. Scores are never pooled: each label keeps its own.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Literal

from dataset_builders.facets import UNLABELLED
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.tree import Tree, TreePath, display_label, facet_title, organ_and_modality

Relation = Literal["same", "related"]
RADIOLOGY_MODALITIES = ("X-ray", "Mammography", "CT", "MRI", "Ultrasound")
"""Modalities found by a search for radiology, which is no benchmark's department."""
TOPIC_OF_REGION = {
    "head": "ENT", "neck": "ENT", "brain": "neurology", "eye": "Ophthalmology", "retina": "Ophthalmology", "chest": "Pulmonary medicine",
    "heart": "Cardiology", "breast": "Mammography", "abdomen": "Gastroenterology", "pelvis": "Urology", "spine": "Orthopedics",
    "shoulder": "Orthopedics", "forearm": "Orthopedics", "thigh": "Orthopedics", "leg": "Orthopedics", "hand": "Orthopedics",
    "hip": "Orthopedics", "foot": "Orthopedics", "skin": "Dermatology", "whole body": "Nuclear medicine",
}  # fmt: skip
"""Body region -> topic under which its terms are listed if the vocabulary names no department."""


@dataclass(frozen=True)
class Topic:
    """A topic. `synonyms`, `related`: folded words (`fold`).

    `kind`: modality, department, or the facet of its only label.
    """

    slug: str
    name: str
    kind: str
    synonyms: tuple[str, ...]
    related: tuple[str, ...] = ()

    @property
    def search_words(self) -> tuple[str, ...]:
        """Broader words that also lead to the topic."""
        return ("radiology", "radiological imaging") if self.name in RADIOLOGY_MODALITIES else ()


@dataclass(frozen=True)
class TopicLabel:
    """A facet value of one benchmark.

    `n`: number of questions with it; if only published numbers are known, their n. `section`: key
    of the question set; empty for the benchmark's first.
    """

    family: str
    facet: str
    value: str
    n: int
    section: str = ""

    @property
    def display_name(self) -> str:
        return display_label(self.facet, self.value)

    @property
    def path(self) -> TreePath:
        """The path that selects its questions."""
        return (self.facet, self.value)

    @property
    def words(self) -> tuple[str, ...]:
        """Folded words for matching topics; an image type is matched by organ and by modality."""
        if self.facet == "image_type":
            return (fold(self.display_name), *(fold(part) for part in organ_and_modality(self.value)))
        return (fold(self.value), fold(self.display_name))

    @property
    def search_words(self) -> tuple[str, ...]:
        """Folded words for searching, including a paper's abbreviations of tasks.

        `words` leaves these out, because they are ambiguous: "MR" may also be magnetic resonance.
        """
        short = next((term.synonyms for term in load_terms("task") if term.concept == self.value), ())
        return (*self.words, *map(fold, short))


@lru_cache(maxsize=10_000)
def fold(word: str) -> str:
    """Normalise a word for comparison: without accents, case and punctuation.

    >>> fold("Fundus  Photography"), fold("X-Ray"), fold("Ménière")
    ('fundus photography', 'x ray', 'meniere')
    """
    # A word without any ASCII letter would become empty, so it is kept as it is.
    plain = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode() or word
    return " ".join(re.findall(r"\w+", plain.lower().replace("_", " ")))


def topic_slug(name: str) -> str:
    """Return the last part of a topic's address.

    >>> topic_slug("Oncology (Medical)")
    'oncology-medical'
    """
    return fold(name).replace(" ", "-") or "-"


@cache
def known_topics() -> dict[str, Topic]:
    """Return the topics of the vocabulary by slug. A modality is related to its parent
    modalities.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for technique in load_terms("technique"):
        for name in technique.modalities if len(technique.modalities) == 1 else ():
            kinds[name] += technique.names
    topics = {}
    for term in load_terms("modality", "department"):
        synonyms = dict.fromkeys(map(fold, (term.concept, *term.synonyms, *kinds[term.concept])))
        related = tuple(map(fold, (*term.related, *term.parents)))
        topic = Topic(topic_slug(term.concept), term.concept, term.kind, tuple(synonyms), related)
        topics[topic.slug] = topic
    return topics


def topic_labels(family: str, tree: Tree, section: str = "") -> list[TopicLabel]:
    """List the labels of all facets of a question set."""
    # The labels of image types combine organ and modality, which would otherwise be listed twice.
    halves = ("organ", "modality") if board_spec(family).by_image_type else ()
    return [
        TopicLabel(family, facet, node.label, node.count, section)
        for facet, nodes in tree.facets
        for node in nodes
        if node.label != UNLABELLED and facet not in halves
    ]


def relation(topic: Topic, label: TopicLabel) -> Relation | None:
    """Return how a label relates to a topic; None if it does not."""
    if any(word in topic.synonyms for word in label.words):
        return "same"
    return "related" if any(word in topic.related for word in label.words) else None


def all_topics(labels: Iterable[TopicLabel]) -> dict[str, Topic]:
    """Collect all topics by slug: those of the vocabulary, then one for every other label."""
    topics = dict(known_topics())
    known_words = {word for topic in topics.values() for word in topic.synonyms}
    for label in labels:
        if not any(word in known_words for word in label.words):
            kind = facet_title(label.facet).lower()
            topics.setdefault(
                topic_slug(label.value), Topic(topic_slug(label.value), label.display_name, kind, label.words[:1])
            )
    return topics


def matching_labels(topic: Topic, labels: Iterable[TopicLabel]) -> list[tuple[TopicLabel, Relation]]:
    """List the labels of a topic with their relation: labels of the same meaning first, then by
    size.
    """
    matches = [(label, relation_kind) for label in labels if (relation_kind := relation(topic, label)) is not None]
    return sorted(matches, key=lambda item: (item[1] != "same", -item[0].n, item[0].value))


def labels_by_topic(labels: Iterable[TopicLabel]) -> Mapping[str, list[TopicLabel]]:
    """Return topic slug -> labels of the same meaning, for the topics of the vocabulary.

    Only the first question set of each benchmark is searched.
    """
    first_set_labels = [label for label in labels if not label.section]
    return {
        slug: [label for label in first_set_labels if relation(topic, label) == "same"]
        for slug, topic in known_topics().items()
    }


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
