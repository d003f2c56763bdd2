"""Answer requests for the overview, topics and search from the current snapshot.

Independent of Gradio.

See also: one benchmark's page (`service.py`), drawing (`views/overview.py`, `views/topic.py`).
"""

import html
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.benchmarks import spec as dataset_spec
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, gives_away
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.ranks.standings import ONE_PER_MODEL, metric_info, section_metrics
from leaderboard_space.data.sections import Section, Snapshot
from leaderboard_space.data.topics import (
    TOPIC_OF_REGION,
    Hit,
    Topic,
    TopicLabel,
    all_topics,
    fold,
    known_topics,
    matching_labels,
    search,
    topic_labels,
)
from leaderboard_space.data.tree import TreePath, facet_title
from leaderboard_space.html import count, plural
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from leaderboard_space.views import overview as overview_view
from leaderboard_space.views import topic as topic_view
from leaderboard_space.views.overview import Overview, overview
from leaderboard_space.views.parts import address_of, benchmark_address, set_title
from leaderboard_space.views.topic import Aspect, LabelSet, LabelSummary

SEARCHED_TERM_KINDS = ("finding", "organ", "technique", "region", "site")
"""Kinds of vocabulary terms that are searchable besides topics and labels."""
MAX_QUERY_LENGTH = 100
"""Maximum number of characters of a query that are used: each of its words is compared with every
word of the index."""


class OverviewPages:
    """Answers requests for the overview, topics and search. Thread-safe."""

    def __init__(self, service: Service) -> None:
        self.service, self.board = service, service.board

    def overview(self) -> Overview:
        """Return the matrix of models and benchmarks, cached."""
        return self._overview(self.board.snapshot)

    @cached(COMPUTING)
    def _overview(self, snapshot: Snapshot) -> Overview:
        """Compute the matrix from each benchmark's first question set, if that is official."""
        official_sections = [
            sections[0] for sections in snapshot.sections.values() if sections and sections[0].is_official
        ]
        queries = [
            parse_query(self.board, {"format": section.family, "section": section.key}) for section in official_sections
        ]
        # Use the section of each query: if the store has changed meanwhile, results must not be
        # listed under the earlier version of their section.
        return overview([(query.section, query.standings) for query in queries], snapshot)

    def page(self, request: Mapping[str, Any]) -> str:
        """Render the overview as HTML.

        `request`: its address parameters kind, hide, pin, all, unknown.
        """
        return overview_view.page(self.overview(), self.labels(), request)

    def file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Return the matrix as a file (`name`, `text`, `type`), or its citation (`of`: cite)."""
        return overview_view.file(self.overview(), request)

    def labels(self) -> list[TopicLabel]:
        """List the labels of all question sets, each once per benchmark, from the first set that
        has it.
        """
        return self._labels(self.board.snapshot)

    @cached(COMPUTING)
    def _labels(self, snapshot: Snapshot) -> list[TopicLabel]:
        # The first set with a label defines its n; the benchmark's page opens on that set.
        labels: dict[TreePath, TopicLabel] = {}
        for section in snapshot.all_sections:
            key = "" if section is snapshot.section(section.family, None) else section.key
            for label in topic_labels(section.family, self.board.outcomes(section)[1], key):
                labels.setdefault((section.family, *label.path), label)
        return list(labels.values())

    def topic(self, request: Mapping[str, Any]) -> str:
        """Render a topic's page: one of its labels, in every aspect.

        Args:
            request: `id`, the topic's slug; `label`, `set`, `term`, `all`.
        """
        slug = str(request.get("id") or "")
        labels = self.labels()
        topic = all_topics(labels).get(slug)
        if topic is None:
            return topic_view.unknown_topic(slug, search(slug.replace("-", " ")[:MAX_QUERY_LENGTH], self.hits()))
        matches = matching_labels(topic, labels)
        summary = self.label_summary(topic, labels, str(request.get("label")), str(request.get("set")))
        families = {label.family for label, _ in matches}
        absences = _absence_reasons(topic, [family for family in BENCHMARKS if family not in families], labels)
        term = next(
            (term.concept for term in load_terms(*SEARCHED_TERM_KINDS) if term.concept == request.get("term")), ""
        )
        return topic_view.page(topic, matches, summary, absences, str(request.get("all") or ""), term)

    def topic_file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """Return the table on a topic's page as a file."""
        labels = self.labels()
        topic = all_topics(labels).get(str(request.get("id") or "")) or Topic("none", "none", "", ())
        summary = self.label_summary(topic, labels, str(request.get("label")), str(request.get("set")))
        return topic_view.file(topic, summary, request)

    def label_summary(
        self, topic: Topic, labels: list[TopicLabel], label_id: str, key: str = ""
    ) -> LabelSummary | None:
        """Summarise a label of a topic.

        Args:
            topic: The topic.
            labels: All labels.
            label_id: The requested label; by default the first with scores.
            key: Key of the requested question set; by default the largest official one.

        Returns:
            The summary; None if no label has scores.
        """
        matches = matching_labels(topic, labels)
        requested = [item for item in matches if topic_view.label_id(item[0]) == label_id]
        for label, relation in [*requested, *matches]:
            if sets := self._sets(label):
                label_set = next((item for item in sets if item.section.key == key), sets[0])
                return LabelSummary(label_set.section, label_set.aspects, label, relation, tuple(sets))
        return None

    def _sets(self, label: TopicLabel) -> list[LabelSet]:
        """List the question sets that have scores on a label, with the standings in each aspect.

        Official sets come first, then those with most models.
        """
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
                sets.append(LabelSet(query.section, tuple(sorted(aspects, key=lambda aspect: aspect.given))))
        return sorted(sets, key=lambda item: (not item.section.is_official, -item.models))

    # ---- the search

    def search(self, request: Mapping[str, Any]) -> list[dict[str, str]]:
        """Search the board.

        Args:
            request: `query`, what a visitor typed.

        Returns:
            Hits with `name`, `where` and `address`, best first.
        """
        query = str(request.get("query") or "")[:MAX_QUERY_LENGTH]
        hits = [
            *_intersection_hits(query, self.labels(), self.unprinted()),
            *search(query, self.hits()),
        ]
        return [{"name": hit.name, "where": hit.location, "address": html.unescape(hit.address)} for hit in hits]

    def unprinted(self) -> list[tuple[str, str]]:
        """List (benchmark, facet) pairs for which the paper prints no scores."""
        benchmarks = [family for family in BENCHMARKS if self.board.snapshot.sections[family]]
        facets_by_benchmark = {family: parse_query(self.board, {"format": family}).tree.facets for family in benchmarks}
        return [(family, facet) for family, items in facets_by_benchmark.items() for facet, nodes in items if not nodes]

    def hits(self) -> list[Hit]:
        """Build the search index: topics, labels, scores, models, question sets, benchmarks.

        Cached.
        """
        return self._hits(self.board.snapshot)

    @cached(COMPUTING)
    def _hits(self, snapshot: Snapshot) -> list[Hit]:
        labels, hits = self._labels(snapshot), list[Hit]()
        for slug, topic in all_topics(labels).items():
            matches = matching_labels(topic, labels)
            benchmarks = sorted(
                {BENCHMARK_LABELS[label.family] for label, relation in matches if relation == "same"},
                key=list(BENCHMARK_LABELS.values()).index,
            )
            related = sorted({BENCHMARK_LABELS[label.family] for label, _ in matches} - set(benchmarks))
            description = f"{topic.kind} in {', '.join(benchmarks)}" if benchmarks else topic.kind
            description += f" · related in {', '.join(related)}" if related else ""
            hits.append(
                Hit(
                    topic.name,
                    description,
                    address_of("topic", slug),
                    (*topic.synonyms, *topic.search_words),
                    3 if slug in known_topics() else 2,
                )
            )
        for label in labels:
            description = f"{facet_title(label.facet).lower()} of {BENCHMARK_LABELS[label.family]}, n {count(label.n)}"
            address = address_of("b", label.family, s=label.section, facet=f"{label.facet}:{label.value}")
            hits.append(Hit(label.display_name, description, address, label.search_words, 1))
        for family, sections in snapshot.sections.items():
            for metric in section_metrics(sections[0], None) if sections else ():
                name = metric_info(metric, family).label
                address = address_of("b", family, s=sections[0].key, m=metric)
                hits.append(Hit(name, f"score of {BENCHMARK_LABELS[family]}", address, (fold(name), fold(metric))))
        # Sets besides the benchmark's first are reachable by name only, so each is an entry of its
        # own.
        sets_of_model: dict[str, list[Section]] = {}
        for section in snapshot.all_sections:
            if section is not snapshot.section(section.family, None):
                results = plural(len(section.entries), "result")
                description = f"set of {plural(section.questions, 'question')}, {results}"
                words = (
                    fold(section.title()),
                    fold(f"{section.kind} {section.split} {BENCHMARK_LABELS[section.family]} {section.benchmark}"),
                )
                hits.append(Hit(set_title(section), description, html.unescape(benchmark_address(section)), words, 1))
            for name in {entry.result.model.name for entry in section.entries}:
                sets_of_model.setdefault(name, []).append(section)
        for name, sets in sets_of_model.items():
            places = dict.fromkeys(BENCHMARK_LABELS[section.family] for section in sets)
            hits.append(
                Hit(name, f"model in {', '.join(places)}", address_of("model", name), (fold(name),), len(places))
            )
        for family in BENCHMARKS:
            names = (
                fold(BENCHMARK_LABELS[family]),
                fold(family),
                fold(board_spec(family).task),
                *map(fold, board_spec(family).words),
            )
            hits.append(
                Hit(
                    BENCHMARK_LABELS[family], f"benchmark: {board_spec(family).task}", address_of("b", family), names, 5
                )
            )
        return hits + _vocabulary_hits({word for hit in hits for word in hit.words})


def _absence_reasons(topic: Topic, families: list[str], labels: list[TopicLabel]) -> list[str]:
    """Explain which benchmarks have no scores for a topic: no such label, or labels without known
    scores.
    """
    first_set_labels = [label for label in labels if not label.section]
    labelled_families = {
        label.family
        for label in first_set_labels
        if topic.kind in (label.facet, label.facet == "image_type" and "modality")
    }
    labelled = [
        family
        for family in families
        if family not in labelled_families
        and topic.kind in (facet_title(facet).lower() for facet in dataset_spec(family).facets)
    ]
    lines = [
        f"{BENCHMARK_LABELS[family]} has {topic.kind} labels, but its paper prints no scores for them: measured results will appear here."
        for family in labelled
    ]
    unlabelled = [BENCHMARK_LABELS[family] for family in families if family not in labelled]
    return [*lines, *([f"No such label: {', '.join(unlabelled)}."] if unlabelled else [])]


def _intersection_hits(query: str, labels: list[TopicLabel], unprinted: list[tuple[str, str]]) -> list[Hit]:
    """Find labels of several facets that a query names together, such as a department and a
    modality.

    Args:
        query: What a visitor typed.
        labels: All labels.
        unprinted: (benchmark, facet) pairs without known scores, which are found too.
    """
    hits = []
    for family in BENCHMARKS:
        candidates = [
            (word, label) for label in labels if label.family == family and not label.section for word in label.words
        ]
        candidates += [
            (word, TopicLabel(family, facet, topic.name, 0))
            for benchmark, facet in unprinted
            for topic in known_topics().values()
            if benchmark == family and topic.kind == facet
            for word in topic.synonyms
        ]
        label_by_facet: dict[str, TopicLabel] = {}
        for label in _labels_in_query(query, candidates):
            label_by_facet.setdefault(label.facet, label)
        if len(label_by_facet) > 1:
            address = address_of(
                "b", family, facet=[f"{label.facet}:{label.value}" for label in label_by_facet.values()]
            )
            name = " and ".join(label.display_name for label in label_by_facet.values())
            hits.append(Hit(name, f"both, in {BENCHMARK_LABELS[family]}", address, ()))
    return hits


def _labels_in_query(query: str, candidates: Sequence[tuple[str, TopicLabel]]) -> list[TopicLabel]:
    """Find which labels a query names.

    Longest names match first: a bone scan is not a bone.

    Args:
        query: What a visitor typed.
        candidates: (folded name, label).

    Returns:
        The labels, in the query's order.
    """
    remaining, matches = f" {fold(query)} ", list[tuple[int, TopicLabel]]()
    # Blank out what matched, so that a shorter name inside it cannot match again.
    for word, label in sorted(candidates, key=lambda item: -len(item[0])):
        if word and (position := remaining.find(f" {word} ")) >= 0:
            matches.append((position, label))
            remaining = remaining[: position + 1] + "-" * len(word) + remaining[position + 1 + len(word) :]
    return [label for _, label in sorted(matches, key=lambda item: item[0])]


def _vocabulary_hits(indexed_words: set[str]) -> list[Hit]:
    """Index the vocabulary terms that have a name which no other entry has.

    Each leads to its department, else its modality, else the topic of its body region.
    `indexed_words` are the words of all other entries.
    """
    slugs = {word: slug for slug, topic in known_topics().items() for word in topic.synonyms}
    hits = []
    for term in load_terms(*SEARCHED_TERM_KINDS):
        regions = (term.concept, *term.regions, *term.parents)
        places = (term.department, *term.modalities, *(TOPIC_OF_REGION.get(region, "") for region in regions))
        place = next((fold(word) for word in places if fold(word) in slugs), None)
        names = (fold(term.concept), *map(fold, (*term.synonyms, *term.bare)))
        words = tuple(word for word in names if word not in indexed_words)
        if place and words:
            topic, is_new = known_topics()[slugs[place]], indexed_words.isdisjoint(names)
            description = f"{term.kind}, shown under {topic.name}" + (
                ": no benchmark labels it alone" if is_new else ""
            )
            address = address_of("topic", topic.slug, term=term.concept if is_new else None)
            hits.append(Hit(term.concept.capitalize(), description, address, words, 0.5))
    return hits
