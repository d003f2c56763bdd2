"""Search the board: the index of topics, labels, scores, models, question sets and benchmarks, each
with the address that it leads to.

See also: matching and spelling (`data/topics.py`).
"""

import html
from collections.abc import Sequence

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.terms import load_terms
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, metric_info
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.sections import Section, Snapshot
from leaderboard_space.data.topics import (
    TOPIC_OF_REGION,
    Hit,
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
from leaderboard_space.query import parse_query, section_metrics
from leaderboard_space.views.parts import Request, address_of, benchmark_address, set_title

SEARCHED_TERM_KINDS = ("finding", "organ", "technique", "region", "site")
"""Kinds of vocabulary terms that are searchable besides topics and labels."""
MAX_QUERY_LENGTH = 100
"""Maximum number of characters of a query that are used: each of its words is compared with every
word of the index."""


def answer(board: Board, request: Request) -> list[dict[str, str]]:
    """Search the board.

    Args:
        board: The board.
        request: `query`, what a visitor typed.

    Returns:
        Hits with `name`, `where` and `address`, best first.
    """
    query, snapshot = str(request.get("query") or "")[:MAX_QUERY_LENGTH], board.snapshot
    hits = [*_intersection_hits(query, board, snapshot), *search(query, search_index(board, snapshot))]
    return [{"name": hit.name, "where": hit.location, "address": html.unescape(hit.address)} for hit in hits]


@cached(COMPUTING)
def board_labels(board: Board, snapshot: Snapshot) -> list[TopicLabel]:
    """List the labels of all question sets, each once per benchmark, from the first set that has
    it. Cached.

    Args:
        board: The board.
        snapshot: Its current snapshot.
    """
    # The first set with a label defines its n; the benchmark's page opens on that set.
    labels: dict[TreePath, TopicLabel] = {}
    for section in snapshot.all_sections:
        key = "" if section is snapshot.section(section.family, None) else section.key
        for label in topic_labels(section.family, board.outcomes(section)[1], key):
            labels.setdefault((section.family, *label.path), label)
    return list(labels.values())


@cached(COMPUTING)
def search_index(board: Board, snapshot: Snapshot) -> list[Hit]:
    """Build the search index: topics, labels, scores, models, question sets, benchmarks. Cached.

    Args:
        board: The board.
        snapshot: Its current snapshot.
    """
    labels, hits = board_labels(board, snapshot), list[Hit]()
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
        hits.append(Hit(name, f"model in {', '.join(places)}", address_of("model", name), (fold(name),), len(places)))
    for family in BENCHMARKS:
        names = (
            fold(BENCHMARK_LABELS[family]),
            fold(family),
            fold(board_spec(family).task),
            *map(fold, board_spec(family).words),
        )
        hits.append(
            Hit(BENCHMARK_LABELS[family], f"benchmark: {board_spec(family).task}", address_of("b", family), names, 5)
        )
    return hits + _vocabulary_hits({word for hit in hits for word in hit.words})


def _intersection_hits(query: str, board: Board, snapshot: Snapshot) -> list[Hit]:
    """Find labels of several facets that a query names together, such as a department and a
    modality.

    Facets for which the paper prints no scores are found too.
    """
    hits = []
    for family in (family for family in BENCHMARKS if snapshot.sections[family]):
        candidates = [
            (word, label)
            for label in board_labels(board, snapshot)
            if label.family == family and not label.section
            for word in label.words
        ]
        candidates += [
            (word, TopicLabel(family, facet, topic.name, 0))
            for facet, nodes in parse_query(board, {"format": family}).tree.facets
            for topic in known_topics().values()
            if not nodes and topic.kind == facet
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
