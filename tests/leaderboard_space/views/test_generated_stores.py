"""Check generated stores: every page says what the raw files show (`checks/pages.py`); sets of
questions are never merged, and every view of one set names the others beside it.
"""

import html
import re
from pathlib import Path

import numpy as np
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from leaderboard_space import app
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import MAX_RUNS
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.topics import all_topics, matching_labels
from leaderboard_space.views import overview, search, topic
from leaderboard_space.views.overview import load_overview
from leaderboard_space.views.search import board_labels
from tests.leaderboard_space.checks.claims import plain
from tests.leaderboard_space.checks.pages import check_store
from tests.leaderboard_space.generated import make, printed
from tests.leaderboard_space.stores import add_run, answers, questions
from tests.sampling import few

PUBLISHED = board_results()
GMAI = "gmai-mmbench"


def _random_store(store: Path, seed: int) -> None:
    """Make results of some benchmarks on several sets each: phantoms, official by their counts,
    custom ones, both splits of GMAI-MMBench.
    """
    rng = np.random.default_rng(seed)
    (store / "results").mkdir()
    for family in BENCHMARKS:
        for number in range(int(rng.integers(0, 4))):
            question_table = questions(family, int(rng.integers(6, 30)), seed=seed * 10 + number)
            origin = str(rng.choice(["phantom", "official", "custom"]))
            benchmark_fields = {"name": f"own-{number}" if origin == "custom" else family, "origin": origin}
            if family == GMAI:
                benchmark_fields["split"] = str(rng.choice(["validation", "test"]))
            for at in range(int(rng.integers(1, 5))):
                name = str(rng.choice(["GPT-4o", "RadFM", f"Model {at}"]))
                add_run(
                    store,
                    family,
                    question_table,
                    answers(question_table, 0.5, seed=at),
                    name,
                    "open",
                    run=f"run{at}",
                    **benchmark_fields,
                )


@pytest.mark.parametrize("seed", few(range(4)))
def test_no_view_merges_two_sets(tmp_path: Path, seed: int) -> None:
    _random_store(tmp_path, seed)
    board = Board(tmp_path, PUBLISHED)
    papers_board = Board(None, PUBLISHED)
    matrix, sections = load_overview(board, board.snapshot), board.snapshot.sections

    for column in matrix.columns:
        column_entries = {id(entry) for entry in column.section.entries}
        assert column.section is sections[column.family][0]
        for line in matrix.rows:
            assert all(id(row.entry) in column_entries for row in line.rows.get(column.family, []))
            elsewhere = [
                section
                for section in sections[column.family]
                if section is not column.section
                and any(entry.result.model.name == line.name for entry in section.entries)
            ]
            assert line.elsewhere.get(column.family, []) == elsewhere
    columns = [column.section for column in matrix.columns]
    other_sections = [
        section
        for family in BENCHMARKS
        for section in sections[family]
        if not any(section is column for column in columns)
    ]
    assert matrix.other_sets == [
        (section, n) for section in other_sections if (n := sum(entry.folder is not None for entry in section.entries))
    ]
    total = sum(n for _, n in matrix.other_sets)
    assert (f"This store also has {total} result" in plain(overview.page(board, {}))) == (total > 0)

    labels, rng = board_labels(board, board.snapshot), np.random.default_rng(seed)
    known_topics = list(all_topics(labels).values())
    for known_topic in [known_topics[int(at)] for at in rng.integers(0, len(known_topics), 12)]:
        for label, _ in matching_labels(known_topic, labels)[:2]:
            label_key = f"{label.family}:{label.facet}:{label.value}"
            summary = topic.label_summary(board, known_topic, label_key)
            if summary is None or summary.label != label:
                continue
            official = [section.models for section in summary.sets if section.section.is_official]
            assert official == sorted(official, reverse=True) and summary.section is summary.sets[0].section
            for section in summary.sets:
                page = topic.page(board, {"id": known_topic.slug, "label": label_key, "set": section.section.key})
                rows = set(map(html.unescape, re.findall(r'<tr data-key="([^"]*)">', page)))
                models = {row.entry.result.model.name for aspect in section.aspects for row in aspect.standings.models}
                assert rows <= models and len(rows) == min(len(models), 20)
                assert {
                    entry for aspect in section.aspects for entry in (row.entry.key for row in aspect.standings.rows)
                } <= {entry.key for entry in section.section.entries}

    eyes = next(candidate for candidate in known_topics if candidate.slug == "ophthalmology")
    with_papers, without_results = (
        next(
            section
            for section in topic.label_summary(each_board, eyes, f"{GMAI}:department:Ophthalmology").sets
            if section.models >= 50
        )  # type: ignore[union-attr]
        for each_board in (board, papers_board)
    )
    assert with_papers.models == without_results.models  # measured results do not replace the papers' models
    assert sections[GMAI][0].key == papers_board.snapshot.sections[GMAI][0].key == "test.complete"


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", few([100, 101], 1))
def test_the_search_finds_models_and_sets_wherever_they_are(tmp_path: Path, seed: int) -> None:
    _random_store(tmp_path, seed)
    board = Board(tmp_path, PUBLISHED)
    for sections in board.snapshot.sections.values():
        for number, section in enumerate(sections):
            if number:
                hits = search.answer(board, {"query": f"{section.kind} {section.split} {section.benchmark}"})
                assert f"#/b/{section.family}?s={section.key}" in {hit["address"] for hit in hits}, section.key
            for entry in section.entries[:2]:
                assert entry.result.model.name in {
                    hit["name"] for hit in search.answer(board, {"query": entry.result.model.name})
                }


@pytest.mark.slow
@pytest.mark.parametrize("seed", few([3008, 100, 7, 16, 84]))
def test_every_page_says_what_the_raw_files_show(tmp_path: Path, seed: int) -> None:
    family = make(tmp_path, seed)
    check_store(tmp_path, family, printed(family, seed))


def test_the_page_about_names_the_numbers_that_the_board_uses() -> None:
    page = plain(app.about())
    assert "Fewer than 30 cases are grey" in page and f"the best {MAX_RUNS}, where there are more" in page
