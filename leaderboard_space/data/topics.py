"""Topics: what a visitor cares about ("MRI", "Ophthalmology"), and the labels by which each benchmark knows of it.

The modalities and departments of the vocabulary (`dataset_builders/terms.csv`) are the table of synonyms, which the board shows: `same`
are words for the topic itself, `related` are labels that overlap with it. A label that no topic names is a topic of its own. Nothing is
pooled: each label keeps its own score.
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
from leaderboard_space.data.tree import FACET_NAMES, Tree, TreePath, display_label, organ_and_modality

Relation = Literal["same", "related"]
RADIOLOGY_MODALITIES = ("X-ray", "Mammography", "CT", "MRI", "Ultrasound")
"""Modalities that a search for radiology, which no benchmark has as a department, leads to."""
TOPIC_OF_REGION = {
    "head": "ENT", "neck": "ENT", "brain": "neurology", "eye": "Ophthalmology", "retina": "Ophthalmology", "chest": "Pulmonary medicine",
    "heart": "Cardiology", "breast": "Mammography", "abdomen": "Gastroenterology", "pelvis": "Urology", "spine": "Orthopedics",
    "shoulder": "Orthopedics", "forearm": "Orthopedics", "thigh": "Orthopedics", "leg": "Orthopedics", "hand": "Orthopedics",
    "hip": "Orthopedics", "foot": "Orthopedics", "skin": "Dermatology", "whole body": "Nuclear medicine",
}  # fmt: skip
"""Region of the body -> the topic that a word of it is shown under, where the vocabulary names no department."""


@dataclass(frozen=True)
class Topic:
    """`same`, `related`: folded words (see `fold`). `kind`: modality, department, or the facet of the one label it is."""

    slug: str
    name: str
    kind: str
    same: tuple[str, ...]
    related: tuple[str, ...] = ()

    @property
    def searched(self) -> tuple[str, ...]:
        """Words that lead to it although they name more."""
        return ("radiology", "radiological imaging") if self.name in RADIOLOGY_MODALITIES else ()


@dataclass(frozen=True)
class TopicLabel:
    """A facet value of one benchmark. `n`: how many questions carry it; where only papers' numbers are known, the n of those.
    `section`: the key of the set that these are of, empty for the one that the benchmark's page begins with."""

    family: str
    facet: str
    value: str
    n: int
    section: str = ""

    @property
    def shown(self) -> str:
        return display_label(self.facet, self.value)

    @property
    def path(self) -> TreePath:
        """What selects its questions."""
        return (self.facet, self.value)

    @property
    def words(self) -> tuple[str, ...]:
        """The folded words it is matched by; the label of an image type is organ and modality at once."""
        if self.facet == "image_type":
            return (fold(self.shown), *(fold(part) for part in organ_and_modality(self.value)))
        return (fold(self.value), fold(self.shown))

    @property
    def searched(self) -> tuple[str, ...]:
        """The folded words it is found by: a paper's abbreviation of a task names nothing else ("MR" is no magnetic resonance)."""
        short = next((term.synonyms for term in load_terms("task") if term.concept == self.value), ())
        return (*self.words, *map(fold, short))


@lru_cache(maxsize=10_000)
def fold(word: str) -> str:
    """A word as it is compared: without accents, case and punctuation.

    >>> fold("Fundus  Photography"), fold("X-Ray"), fold("Ménière")
    ('fundus photography', 'x ray', 'meniere')
    """
    plain = unicodedata.normalize("NFKD", word).encode("ascii", "ignore").decode() or word
    return " ".join(re.findall(r"\w+", plain.lower().replace("_", " ")))


def topic_slug(name: str) -> str:
    """The end of a topic's address.

    >>> slug_of("Oncology (Medical)")
    'oncology-medical'
    """
    return fold(name).replace(" ", "-") or "-"


def topic_table() -> tuple[dict[str, str], ...]:
    """The table of synonyms as it is shown: topic, kind, same, related. A modality is related to those that it is a kind of."""
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
    """The topics of the table of synonyms, by slug."""
    found = {}
    for row in topic_table():
        same = (fold(row["topic"]), *(fold(word) for word in row["same"].split(";")))
        related = tuple(fold(word) for word in row["related"].split(";") if word.strip())
        topic = Topic(topic_slug(row["topic"]), row["topic"], row["kind"], tuple(dict.fromkeys(same)), related)
        found[topic.slug] = topic
    return found


def topic_labels(family: str, tree: Tree, section: str = "") -> list[TopicLabel]:
    """Every label of every facet of a set of questions."""
    halves = (
        ("organ", "modality") if board_spec(family).by_image_type else ()
    )  # the image types say them, each by its own label
    return [
        TopicLabel(family, facet, node.label, node.count, section)
        for facet, nodes in tree.facets
        for node in nodes
        if node.label != UNLABELLED and facet not in halves
    ]


def relation(topic: Topic, label: TopicLabel) -> Relation | None:
    """How a label stands to a topic."""
    if any(word in topic.same for word in label.words):
        return "same"
    return "related" if any(word in topic.related for word in label.words) else None


def all_topics(labels: Iterable[TopicLabel]) -> dict[str, Topic]:
    """All topics by slug: those of the table, then every label that is none of them."""
    found = dict(known_topics())
    same = {word for topic in found.values() for word in topic.same}
    for label in labels:
        if not any(word in same for word in label.words):
            kind = FACET_NAMES.get(label.facet, label.facet).lower()
            found.setdefault(
                topic_slug(label.value), Topic(topic_slug(label.value), label.shown, kind, label.words[:1])
            )
    return found


def matching_labels(topic: Topic, labels: Iterable[TopicLabel]) -> list[tuple[TopicLabel, Relation]]:
    """The labels of a topic, those that are it first, the largest first."""
    found = [(label, how) for label in labels if (how := relation(topic, label)) is not None]
    return sorted(found, key=lambda item: (item[1] != "same", -item[0].n, item[0].value))


def labels_by_topic(labels: Iterable[TopicLabel]) -> Mapping[str, list[TopicLabel]]:
    """Slug -> the labels that are the topic itself, of the topics in the table; no other sets than the benchmarks' first are counted."""
    held = [label for label in labels if not label.section]
    return {
        slug: [label for label in held if relation(topic, label) == "same"] for slug, topic in known_topics().items()
    }
