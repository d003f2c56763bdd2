"""The first screen, topics and the search over them, answered from the current snapshot. Knows no Gradio.

See also: one benchmark's page (`service.py`), drawing (`views/overview.py`, `views/topic.py`).
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.benchmarks import spec as dataset_spec
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, gives_away
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.ranks.standings import ONE_PER_MODEL, metric_info, section_metrics
from leaderboard_space.data.search import Hit, search
from leaderboard_space.data.store.sections import Section, Snapshot
from leaderboard_space.data.topics import (
    TOPIC_OF_REGION,
    Topic,
    TopicLabel,
    all_topics,
    fold,
    known_topics,
    matching_labels,
    topic_labels,
)
from leaderboard_space.data.tree import FACET_NAMES, TreePath
from leaderboard_space.html import count, plural
from leaderboard_space.overview import Overview, overview
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from leaderboard_space.views import overview as overview_view
from leaderboard_space.views import topic as topic_view
from leaderboard_space.views.parts import address_of, benchmark_address, set_title
from leaderboard_space.views.topic import Aspect, LabelSet, LabelSummary

T = TypeVar("T")
SEARCHED_TERM_KINDS = ("finding", "organ", "technique", "region", "site")
"""Kinds of terms that the search knows besides topics and labels."""
MAX_QUERY_LENGTH = 100
"""Characters of what is searched for: every word of it is compared with every word that the board knows."""


class OverviewPages:
    """Answers the requests of the first screen and of topics. Thread-safe, as the service is."""

    def __init__(self, service: Service) -> None:
        self.service, self.board = service, service.board

    def overview(self) -> Overview:
        """The matrix of models and benchmarks."""
        return self._overview(self.board.snapshot)

    @cached(COMPUTING)
    def _overview(self, snapshot: Snapshot) -> Overview:
        """The sets that the benchmarks' pages begin with, where they are official, with their standings."""
        first = [sections[0] for sections in snapshot.sections.values() if sections and sections[0].is_official]
        queries = [parse_query(self.board, {"format": one.family, "section": one.key}) for one in first]
        # The query's own section: news may have come in between, and a result must not stand under the section before it.
        return overview([(query.section, query.standings) for query in queries], snapshot)

    def page(self, request: Mapping[str, Any]) -> str:
        """The first screen as HTML; `request` as its address says: kind, hide, pin, all, unknown."""
        return overview_view.page(self.overview(), self.labels(), request)

    def file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """The matrix as a file (`name`, `text`, `type`), or how to cite it (`of`: cite)."""
        return overview_view.file(self.overview(), request)

    def labels(self) -> list[TopicLabel]:
        """Every label of every set of questions, each once in a benchmark: with what the first set that has it says of it."""
        return self._labels(self.board.snapshot)

    @cached(COMPUTING)
    def _labels(self, snapshot: Snapshot) -> list[TopicLabel]:
        labels: dict[TreePath, TopicLabel] = {}
        for section in snapshot.all_sections:
            key = "" if section is snapshot.section(section.family, None) else section.key
            for label in topic_labels(section.family, self.board.outcomes(section)[1], key):
                labels.setdefault((section.family, *label.path), label)
        return list(labels.values())

    def topic(self, request: Mapping[str, Any]) -> str:
        """The page of a topic: one of its labels, in every aspect."""
        wanted = str(request.get("id") or "")
        labels = self.labels()
        topic = all_topics(labels).get(wanted)
        if topic is None:
            return topic_view.unknown(wanted, search(wanted.replace("-", " ")[:MAX_QUERY_LENGTH], self.hits()))
        held = matching_labels(topic, labels)
        shown = self.shown(topic, labels, str(request.get("label")), str(request.get("set")))
        known = {label.family for label, _ in held}
        silent = _absence_reasons(topic, [family for family in BENCHMARKS if family not in known], labels)
        term = next((one.concept for one in load_terms(*SEARCHED_TERM_KINDS) if one.concept == request.get("term")), "")
        return topic_view.page(topic, held, shown, silent, str(request.get("all") or ""), term)

    def topic_file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """What a topic's page shows, as a file."""
        labels = self.labels()
        topic = all_topics(labels).get(str(request.get("id") or "")) or Topic("none", "none", "", ())
        shown = self.shown(topic, labels, str(request.get("label")), str(request.get("set")))
        return topic_view.file(topic, shown, request)

    def shown(self, topic: Topic, labels: list[TopicLabel], wanted: str, key: str = "") -> LabelSummary | None:
        """The label of a topic that is wanted, else its first of which anything is known, in the set of that key, else in the largest; None
        where nothing is."""
        held = matching_labels(topic, labels)
        named = [item for item in held if topic_view.label_id(item[0]) == wanted]
        for label, how in [*named, *held]:
            if sets := self._sets(label):
                shown = next((one for one in sets if one.section.key == key), sets[0])
                return LabelSummary(shown.section, shown.aspects, label, how, tuple(sets))
        return None

    def _sets(self, label: TopicLabel) -> list[LabelSet]:
        """The sets of questions with scores of a label, each with its standings by every aspect: official ones first, of these the one with
        most models."""
        sets = []
        for section in self.board.snapshot.sections[label.family]:
            request = {"format": label.family, "section": section.key, "branches": [label.path], "shown": ONE_PER_MODEL}
            query = parse_query(self.board, request)
            aspects = []
            for metric, does in (
                (board_spec(label.family).aspects or {query.metric: ""}).items() if query.branches else ()
            ):
                ranked = replace(query, metric=metric).standings
                if ranked.models:
                    aspects.append(Aspect(metric, does, ranked, gives_away(label.family, metric, (label.facet,))))
            if aspects:
                sets.append(LabelSet(query.section, tuple(sorted(aspects, key=lambda one: one.given))))
        return sorted(sets, key=lambda one: (not one.section.is_official, -one.models))

    # ---- the search

    def search(self, request: Mapping[str, Any]) -> list[dict[str, str]]:
        """Hits for what a visitor types (`query`): `name`, `where`, `address`."""
        query = str(request.get("query") or "")[:MAX_QUERY_LENGTH]
        found = [
            *_intersection_hits(query, self.labels(), self.unprinted()),
            *_comparison_hits(query, self.hits()),
            *search(query, self.hits()),
        ]
        return [{"name": hit.name, "where": hit.where, "address": html.unescape(hit.address)} for hit in found]

    def unprinted(self) -> list[tuple[str, str]]:
        """Benchmark and facet where the benchmark has the facet, and its paper prints no scores by it."""
        held = [family for family in BENCHMARKS if self.board.snapshot.sections[family]]
        facets = {family: parse_query(self.board, {"format": family}).tree.facets for family in held}
        return [(family, facet) for family, held in facets.items() for facet, nodes in held if not nodes]

    def hits(self) -> list[Hit]:
        """Everything that can be found: topics, labels, scores, models, benchmarks."""
        return self._hits(self.board.snapshot)

    @cached(COMPUTING)
    def _hits(self, snapshot: Snapshot) -> list[Hit]:
        labels, found = self._labels(snapshot), list[Hit]()
        for slug, topic in all_topics(labels).items():
            held = matching_labels(topic, labels)
            where = sorted(
                {BENCHMARK_LABELS[label.family] for label, how in held if how == "same"},
                key=list(BENCHMARK_LABELS.values()).index,
            )
            related = sorted({BENCHMARK_LABELS[label.family] for label, _ in held} - set(where))
            said = f"{topic.kind} in {', '.join(where)}" if where else topic.kind
            said += f" · related in {', '.join(related)}" if related else ""
            found.append(
                Hit(
                    topic.name,
                    said,
                    address_of("topic", slug),
                    (*topic.same, *topic.searched),
                    3 if slug in known_topics() else 2,
                )
            )
        for label in labels:
            said = f"{FACET_NAMES.get(label.facet, label.facet).lower()} of {BENCHMARK_LABELS[label.family]}, n {count(label.n)}"
            address = address_of("b", label.family, s=label.section, facet=f"{label.facet}:{label.value}")
            found.append(Hit(label.shown, said, address, label.searched, 1))
        for family, sections in snapshot.sections.items():
            for metric in section_metrics(sections[0], None) if sections else ():
                name = metric_info(metric, family).label
                address = address_of("b", family, s=sections[0].key, m=metric)
                found.append(Hit(name, f"score of {BENCHMARK_LABELS[family]}", address, (fold(name), fold(metric))))
        sets_of_model: dict[str, list[Section]] = {}
        for section in snapshot.all_sections:
            if section is not snapshot.section(section.family, None):
                results = plural(len(section.entries), "result")
                said = f"set of {plural(section.questions, 'question')}, {results}"
                words = (
                    fold(section.title()),
                    fold(f"{section.kind} {section.split} {BENCHMARK_LABELS[section.family]} {section.benchmark}"),
                )
                found.append(Hit(set_title(section), said, html.unescape(benchmark_address(section)), words, 1))
            for name in {entry.result.model.name for entry in section.entries}:
                sets_of_model.setdefault(name, []).append(section)
        for name, sets in sets_of_model.items():
            places = dict.fromkeys(BENCHMARK_LABELS[section.family] for section in sets)
            found.append(
                Hit(name, f"model in {', '.join(places)}", address_of("model", name), (fold(name),), len(places))
            )
        for family in BENCHMARKS:
            names = (
                fold(BENCHMARK_LABELS[family]),
                fold(family),
                fold(board_spec(family).task),
                *map(fold, board_spec(family).words),
            )
            found.append(
                Hit(
                    BENCHMARK_LABELS[family], f"benchmark: {board_spec(family).task}", address_of("b", family), names, 5
                )
            )
        return found + _vocabulary_hits({word for hit in found for word in hit.words})


def _absence_reasons(topic: Topic, families: list[str], labels: list[TopicLabel]) -> list[str]:
    """Why benchmarks say nothing of a topic: they have no such label, or of this facet nothing is known yet."""
    own = [label for label in labels if not label.section]
    said = {label.family for label in own if topic.kind in (label.facet, label.facet == "image_type" and "modality")}
    labelled = [
        family
        for family in families
        if family not in said and topic.kind in map(_facet_name, dataset_spec(family).facets)
    ]
    lines = [
        f"{BENCHMARK_LABELS[family]} has {topic.kind} labels, but its paper prints no scores for them: measured results will appear here."
        for family in labelled
    ]
    others = [BENCHMARK_LABELS[family] for family in families if family not in labelled]
    return [*lines, *([f"No such label: {', '.join(others)}."] if others else [])]


def _facet_name(facet: str) -> str:
    return FACET_NAMES.get(facet, facet).lower()


def _intersection_hits(query: str, labels: list[TopicLabel], unprinted: list[tuple[str, str]]) -> list[Hit]:
    """Labels of several facets that a query names at once, such as a department and a modality: the questions that have them all, or why
    nothing is known of these (`unprinted`: benchmarks and their facets by which no scores are known)."""
    found = []
    for family in BENCHMARKS:
        named = [
            (word, label) for label in labels if label.family == family and not label.section for word in label.words
        ]
        named += [
            (word, TopicLabel(family, facet, topic.name, 0))
            for of, facet in unprinted
            for topic in known_topics().values()
            if of == family and topic.kind == facet
            for word in topic.same
        ]
        held: dict[str, TopicLabel] = {}
        for label in _names_in_query(query, named):
            held.setdefault(label.facet, label)
        if len(held) > 1:
            address = address_of("b", family, facet=[f"{label.facet}:{label.value}" for label in held.values()])
            name = " and ".join(label.shown for label in held.values())
            found.append(Hit(name, f"both, in {BENCHMARK_LABELS[family]}", address, ()))
    return found


def _comparison_hits(query: str, hits: list[Hit]) -> list[Hit]:
    """Two models that a query names: their comparison."""
    named = _names_in_query(query, [(hit.words[0], hit.name) for hit in hits if hit.where.startswith("model in ")])
    if len(named) != 2:
        return []
    first, second = named
    return [Hit(f"{first} and {second}", "compared", address_of("compare", first=first, second=second), ())]


def _names_in_query(query: str, offered: Sequence[tuple[str, T]]) -> list[T]:
    """What a query names of (folded name, what it is), in the query's order; the longest names first: LLaVA-Med-v1.5 is not LLaVA-Med, and
    a bone scan is of no bone."""
    rest, found = f" {fold(query)} ", list[tuple[int, T]]()
    for word, one in sorted(offered, key=lambda item: -len(item[0])):
        if word and (at := rest.find(f" {word} ")) >= 0:
            found.append((at, one))
            rest = rest[: at + 1] + "-" * len(word) + rest[at + 1 + len(word) :]
    return [one for _, one in sorted(found, key=lambda item: item[0])]


def _vocabulary_hits(known: set[str]) -> list[Hit]:
    """What the vocabulary names and nothing else is called by: each leads to its department, else its modality, else what its region of
    the body is shown under. `known`: the words of all other hits."""
    slugs = {word: slug for slug, topic in known_topics().items() for word in topic.same}
    hits = []
    for term in load_terms(*SEARCHED_TERM_KINDS):
        regions = (term.concept, *term.regions, *term.parents)
        places = (term.department, *term.modalities, *(TOPIC_OF_REGION.get(region, "") for region in regions))
        place = next((fold(word) for word in places if fold(word) in slugs), None)
        names = (fold(term.concept), *map(fold, (*term.synonyms, *term.bare)))
        words = tuple(word for word in names if word not in known)
        if place and words:
            topic, is_new = known_topics()[slugs[place]], known.isdisjoint(names)
            said = f"{term.kind}, shown under {topic.name}" + (": no benchmark labels it alone" if is_new else "")
            address = address_of("topic", topic.slug, term=term.concept if is_new else None)
            hits.append(Hit(term.concept.capitalize(), said, address, words, 0.5))
    return hits
