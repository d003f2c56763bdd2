"""Map topics that visitors look for ("MRI", "Ophthalmology") to the labels of each benchmark.

The modalities and departments of the vocabulary (`dataset_builders/terms.csv`) form a table of
synonyms, shown on the board: `same` are words for the topic itself, `related` are overlapping
labels. A label that fits no topic becomes a topic of its own. Scores are never pooled: each label
keeps its own.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

from dataset_builders.lexical_tree import UNLABELLED
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


def topic_table() -> tuple[dict[str, str], ...]:
    """Return the table of synonyms: topic, kind, same, related.

    A modality is related to its parent modalities.
    """
    kinds: dict[str, list[str]] = defaultdict(list)
    for technique in load_terms("technique"):
        for name in technique.modalities if len(technique.modalities) == 1 else ():
            kinds[name] += technique.names
    return tuple(
        {
            "topic": term.concept, "kind": term.kind, "same": "; ".join((term.concept.lower(), *term.synonyms, *kinds[term.concept])),
            "related": "; ".join((*term.related, *term.parents)),
        }
        for term in load_terms("modality", "department")
    )  # fmt: skip


@cache
def known_topics() -> dict[str, Topic]:
    """Return the topics of the table of synonyms, by slug."""
    topics = {}
    for row in topic_table():
        synonyms = (fold(row["topic"]), *(fold(word) for word in row["same"].split(";")))
        related = tuple(fold(word) for word in row["related"].split(";") if word.strip())
        topic = Topic(topic_slug(row["topic"]), row["topic"], row["kind"], tuple(dict.fromkeys(synonyms)), related)
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
    """Collect all topics by slug: those of the table, then one for every other label."""
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
    """Return topic slug -> labels of the same meaning, for the topics of the table.

    Only the first question set of each benchmark is searched.
    """
    first_set_labels = [label for label in labels if not label.section]
    return {
        slug: [label for label in first_set_labels if relation(topic, label) == "same"]
        for slug, topic in known_topics().items()
    }
