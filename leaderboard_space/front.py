"""The first screen, topics and the search over them, answered from the current snapshot. Knows no Gradio.

See also: one benchmark's page (`service.py`), drawing (`views/overview.py`, `views/topic.py`).
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.benchmarks import spec as dataset_spec
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.data.facets import choice
from leaderboard_space.data.ranks.standings import ONE, Standings, info_of, metrics_of, with_interval
from leaderboard_space.data.search import Hit, search
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.store.trust import is_higher_better, verdicts
from leaderboard_space.data.topics import (
    Label,
    Relation,
    Topic,
    fold,
    kinds_of,
    known_topics,
    labels_of,
    matching,
    topics,
)
from leaderboard_space.data.tree import FACET_LABEL
from leaderboard_space.html import count
from leaderboard_space.overview import OFFICIAL, Overview, overview
from leaderboard_space.service import Service
from leaderboard_space.views import overview as overview_view
from leaderboard_space.views import topic as topic_view
from leaderboard_space.views.addresses import address_of
from leaderboard_space.views.topic import Known, Part

MOST_RELATED = 6
"""Related labels of a topic that are shown per benchmark; the others are named."""
LONGEST_QUERY = 100
"""Characters of what is searched for: every word of it is compared with every word that the board knows."""
LONGEST_KEPT = 1000
"""Characters of a request up to which the first screen is kept for it."""


class Front:
    """Answers the requests of the first screen and of topics. Thread-safe, as the service is."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def overview(self) -> Overview:
        """The matrix of models and benchmarks."""
        found = {family: self._official(family) for family in BENCHMARKS}
        key = tuple(id(standings) for sets in found.values() for _, standings in sets)
        # The standings stand in the key's value, so that no other can come by their ids while it is kept.
        return self.service.memory.remember(("overview", key), lambda: (overview(found), found))[0]

    def page(self, request: Mapping[str, Any]) -> str:
        """The first screen as HTML; `request` as its address says: kind, size, since, sort, pin, all, unknown."""
        found, labels = self.overview(), self.labels()
        said = repr(sorted(request.items(), key=str))
        if len(said) > LONGEST_KEPT:
            return overview_view.page(found, labels, request)
        # Overview and labels stand in the key's value, as above.
        key = ("overview page", id(found), id(labels), said)
        return self.service.memory.remember(key, lambda: (overview_view.page(found, labels, request), found, labels))[0]

    def file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """The matrix as a file (`name`, `text`, `type`), or how to cite it (`of`: cite)."""
        return overview_view.file(self.overview(), request)

    def labels(self) -> list[Label]:
        """Every label of every benchmark's own set of questions."""
        held = [family for family in BENCHMARKS if self.service.board.snapshot.sections[family]]
        queries = [self.service.query({"format": family}) for family in held]
        key = ("labels", *((*query.key[:2], query.ready, query.outcomes is not None) for query in queries))
        found: list[Label] = self.service.memory.remember(
            key, lambda: [label for query in queries for label in labels_of(query.section.family, query.tree)]
        )
        return found

    def topic(self, request: Mapping[str, Any]) -> str:
        """The page of a topic: what each benchmark knows of it, by its own labels."""
        wanted = str(request.get("id") or "")
        labels = self.labels()
        known = topics(labels)
        topic = known.get(wanted)
        if topic is None:
            return topic_view.unknown(wanted, search(wanted.replace("-", " ")[:LONGEST_QUERY], self.hits()))
        return topic_view.page(topic, self.parts(topic, labels), str(request.get("all") or ""))

    def topic_file(self, request: Mapping[str, Any]) -> dict[str, str]:
        """What a topic's page shows, as a file."""
        labels = self.labels()
        topic = topics(labels).get(str(request.get("id") or "")) or Topic("none", "none", "", ())
        return topic_view.file(topic, self.parts(topic, labels), request)

    def parts(self, topic: Topic, labels: list[Label]) -> list[Part]:
        """What each benchmark knows of a topic; marks are corrected for all of them together."""
        drafts: list[tuple[str, Section, list[tuple[Label, Relation, Standings]], list[str]]] = []
        for family in BENCHMARKS:
            held = matching(topic, [label for label in labels if label.family == family])
            if not self.service.board.snapshot.sections[family]:
                continue
            same = sum(how == "same" for _, how in held)
            shown = held[: max(same, MOST_RELATED)]
            known = [(label, how, self._of(label)) for label, how in shown]
            rest = [label.shown for label, _ in held[len(shown) :]]
            section = self.service.query({"format": family}).section
            drafts.append((family, section, known, rest))
        cells = [
            (family, standings, row)
            for family, _, known, _ in drafts
            for _, _, standings in known
            for row in standings.models
        ]
        marks = verdicts(
            [
                (with_interval(row.score, standings.metric), row.run, is_higher_better(standings.metric, family))
                for family, standings, row in cells
            ]
        )
        mark_of = {id(row): mark for (_, _, row), mark in zip(cells, marks, strict=True)}
        parts = []
        for family, section, known, rest in drafts:
            marked = [
                Known(
                    label,
                    how,
                    replace(
                        standings,
                        rows=[
                            replace(
                                row,
                                score=with_interval(row.score, standings.metric).model_copy(
                                    update={"verdict": mark_of.get(id(row))}
                                ),
                            )
                            for row in standings.rows
                        ],
                    ),
                )
                for label, how, standings in known
            ]
            facets = tuple(FACET_LABEL.get(facet, facet).lower() for facet in dataset_spec(family).facets)
            has_kind = any(label.family == family and topic.kind in kinds_of(label) for label in labels)
            labels_kind = topic.kind in facets and not has_kind
            parts.append(Part(family, LABELS[family], spec(family).task, section, marked, rest, facets, labels_kind))
        return parts

    def _of(self, label: Label) -> Standings:
        """The standings of a label's own questions, by the first score that is known of it."""
        request = {
            "format": label.family,
            "branches": [choice(label.facet, label.value)],
            "shown": ONE,
        }
        return self.service.standings(self.service.fitting(self.service.query(request)))

    def _official(self, family: str) -> list[tuple[Section, Standings]]:
        sections = self.service.board.snapshot.sections[family]
        queries = [
            self.service.query({"format": family, "section": section.key})
            for section in sections
            if section.kind in OFFICIAL and section.split == sections[0].split
        ]
        # The query's own section: news may have come in between, and a result must not stand under the section before it.
        return [(query.section, self.service.standings(query)) for query in queries]

    # ---- the search

    def search(self, request: Mapping[str, Any]) -> list[dict[str, str]]:
        """Hits for what a visitor types (`query`): `name`, `where`, `address`."""
        query = str(request.get("query") or "")[:LONGEST_QUERY]
        found = search(query, self.hits())
        return [{"name": hit.name, "where": hit.where, "address": html.unescape(hit.address)} for hit in found]

    def hits(self) -> list[Hit]:
        """Everything that can be found: topics, labels, scores, models, benchmarks."""
        labels = self.labels()
        key = ("hits", self.service.board.snapshot.stamp, len(labels))
        return self.service.memory.remember(key, lambda: self._hits(labels))

    def _hits(self, labels: list[Label]) -> list[Hit]:
        found = []
        for slug, topic in topics(labels).items():
            held = matching(topic, labels)
            where = sorted(
                {LABELS[label.family] for label, how in held if how == "same"}, key=list(LABELS.values()).index
            )
            related = sorted({LABELS[label.family] for label, _ in held} - set(where))
            said = f"{topic.kind} in {', '.join(where)}" if where else topic.kind
            said += f" · related in {', '.join(related)}" if related else ""
            found.append(
                Hit(topic.name, said, address_of("topic", slug), topic.same, 3 if slug in known_topics() else 2)
            )
        for label in labels:
            said = f"{FACET_LABEL.get(label.facet, label.facet).lower()} of {LABELS[label.family]}, n {count(label.n)}"
            address = address_of("b", label.family, facet=f"{label.facet}:{label.value}")
            found.append(Hit(label.shown, said, address, label.words, 1))
        for family, sections in self.service.board.snapshot.sections.items():
            for metric in metrics_of(sections[0], None) if sections else ():
                name = info_of(metric, family).label
                address = address_of("b", family, s=sections[0].key, m=metric)
                found.append(Hit(name, f"score of {LABELS[family]}", address, (fold(name), fold(metric))))
        models: dict[str, set[str]] = {}
        for family, sections in self.service.board.snapshot.sections.items():
            for section in sections:
                for entry in section.entries:
                    if entry.result.model.kind != "baseline":
                        models.setdefault(entry.result.model.name, set()).add(family)
        for name, families in models.items():
            where = [LABELS[family] for family in BENCHMARKS if family in families]
            found.append(
                Hit(name, f"model in {', '.join(where)}", address_of("model", name), (fold(name),), len(families))
            )
        for family in BENCHMARKS:
            words = (fold(LABELS[family]), fold(family), fold(spec(family).task))
            found.append(Hit(LABELS[family], f"benchmark: {spec(family).task}", address_of("b", family), words, 5))
        return found
