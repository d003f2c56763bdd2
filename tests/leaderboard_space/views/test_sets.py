"""Check that sets of questions are never merged: every view of a store shows one set, and names the
others beside it.
"""

from __future__ import annotations

import csv
import html
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.lexical_tree import select_by_branches
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks.gmai_mmbench import read_official
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results
from leaderboard_space.data.topics import all_topics, matching_labels
from leaderboard_space.front import OverviewPages
from leaderboard_space.query import parse_query
from leaderboard_space.service import Service
from tests.leaderboard_space.checks.claims import plain
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


@pytest.mark.parametrize("seed", few(range(24), 2))
def test_no_view_merges_two_sets(tmp_path: Path, seed: int) -> None:
    _random_store(tmp_path, seed)
    board = Board(tmp_path, PUBLISHED)
    front, papers_front = OverviewPages(Service(board)), OverviewPages(Service(Board(None, PUBLISHED)))
    overview, sections = front.overview(), board.snapshot.sections

    for column in overview.columns:
        column_entries = {id(entry) for entry in column.section.entries}
        assert column.section is sections[column.family][0]
        for line in overview.rows:
            cell = line.cells.get(column.family)
            assert cell is None or id(cell.row.entry) in column_entries
            elsewhere = [
                section
                for section in sections[column.family]
                if section is not column.section
                and any(entry.result.model.name == line.name for entry in section.entries)
            ]
            assert line.elsewhere.get(column.family, []) == elsewhere
    columns = [column.section for column in overview.columns]
    other_sections = [
        section
        for family in BENCHMARKS
        for section in sections[family]
        if not any(section is column for column in columns)
    ]
    assert overview.other_sets == [
        (section, n) for section in other_sections if (n := sum(entry.folder is not None for entry in section.entries))
    ]
    total = sum(n for _, n in overview.other_sets)
    assert (f"This store also has {total} result" in plain(front.page({}))) == (total > 0)

    labels, rng = front.labels(), np.random.default_rng(seed)
    known_topics = list(all_topics(labels).values())
    for topic in [known_topics[int(at)] for at in rng.integers(0, len(known_topics), 12)]:
        for label, _ in matching_labels(topic, labels)[:2]:
            label_key = f"{label.family}:{label.facet}:{label.value}"
            summary = front.label_summary(topic, labels, label_key)
            if summary is None or summary.label != label:
                continue
            official = [section.models for section in summary.sets if section.section.is_official]
            assert official == sorted(official, reverse=True) and summary.section is summary.sets[0].section
            for section in summary.sets:
                page = front.topic({"id": topic.slug, "label": label_key, "set": section.section.key})
                rows = set(map(html.unescape, re.findall(r'<tr data-key="([^"]*)">', page)))
                models = {row.entry.result.model.name for aspect in section.aspects for row in aspect.standings.models}
                assert rows <= models and len(rows) == min(len(models), 20)
                assert {
                    entry for aspect in section.aspects for entry in (row.entry.key for row in aspect.standings.rows)
                } <= {entry.key for entry in section.section.entries}

    eyes = next(topic for topic in known_topics if topic.slug == "ophthalmology")
    with_papers, without_results = (
        next(
            section
            for section in pages.label_summary(eyes, pages.labels(), f"{GMAI}:department:Ophthalmology").sets
            if section.models >= 50
        )  # type: ignore[union-attr]
        for pages in (front, papers_front)
    )
    assert with_papers.models == without_results.models  # measured results do not replace the papers' models
    assert sections[GMAI][0].key == papers_front.service.board.snapshot.sections[GMAI][0].key == "test.complete"


@pytest.mark.parametrize("seed", few(range(100, 112), 1))
def test_the_search_finds_models_and_sets_wherever_they_are(tmp_path: Path, seed: int) -> None:
    _random_store(tmp_path, seed)
    front = OverviewPages(Service(Board(tmp_path, PUBLISHED)))
    for sections in front.service.board.snapshot.sections.values():
        for number, section in enumerate(sections):
            if number:
                hits = front.search({"query": f"{section.kind} {section.split} {section.benchmark}"})
                assert f"#/b/{section.family}?s={section.key}" in {hit["address"] for hit in hits}, section.key
            for entry in section.entries[:2]:
                assert entry.result.model.name in {
                    hit["name"] for hit in front.search({"query": entry.result.model.name})
                }


FACET_COLUMNS = {"task": "clinical vqa task", "granularity": "perceptual granularity", "keyword": "category"}
"""Our facets -> the columns that VLMEvalKit's files call differently."""


def _recorded_run(file: Path, store: Path) -> pd.DataFrame:
    """Add a model's recorded answers, read by the authors' own rule, to a store; return the file's
    table with VLMEvalKit's verdicts.
    """
    table = pd.read_excel(file, keep_default_na=False, dtype=str)
    table = table.assign(**{facet: table[column] for facet, column in FACET_COLUMNS.items()})
    options = [[option for option in row if option] for row in table[list(LETTERS[:5])].to_numpy().tolist()]
    question_table = table[["question", "department", "modality", *FACET_COLUMNS]].assign(
        question_id=table["index"], case_id=table["index"], image_id=table["image_path"], options=options, question_type="single",
        answer=[[LETTERS.index(letter)] for letter in table["answer"]], categories=[[] for _ in options], image_license="unknown",
    )  # fmt: skip
    readings = [read_official(*pair, "single") for pair in zip(table["prediction"], options, strict=True)]
    answer_table = pd.DataFrame(
        {"question_id": table["index"], "sample": 0, "response": table["prediction"], "rule": "official", "scores": None, "seconds": 0.0,
         "choice": [reading.choice for reading in readings], "status": [reading.status for reading in readings]}
    )  # fmt: skip
    add_run(store, GMAI, question_table, answer_table, file.parent.name, extraction="official", origin="official")
    return table


@pytest.mark.sources
@pytest.mark.exhaustive
def test_recorded_results_of_real_models_are_what_their_authors_counted(sources: Path, tmp_path: Path) -> None:
    """For all five models on GMAI-MMBench's validation set, read by the authors' own rule, the
    board's page by department, clinical task and granularity shows the accuracies of VLMEvalKit's
    own files; filters by department and modality agree with counts of its verdicts.
    """
    files = sorted(sources.glob("later_answers/gmai_vlmevalkit/*/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    (tmp_path / "results").mkdir()
    tables = {file.parent.name: _recorded_run(file, tmp_path) for file in files}
    service = Service(Board(tmp_path, PUBLISHED))
    section = next(
        candidate
        for candidate in service.board.snapshot.sections[GMAI]
        if candidate.split == "validation" and candidate.fingerprint
    )
    assert len(files) == len(section.entries) == 5
    request = {"format": GMAI, "section": section.key, "metric": "accuracy", "shown": "all"}

    for facet, kind in (
        ("department", "department"),
        ("task", "clinical_vqa_task"),
        ("granularity", "perceptual_granularity"),
    ):
        rows = json.loads(service.export({**request, "of": "breakdown", "facet": facet, "as": "json"})["text"])
        for file in files:
            (printed,) = csv.DictReader(next(file.parent.glob(f"*_{kind}_acc.csv")).open())
            board_values = {
                row["facet_value"].casefold(): row["value"] for row in rows if row["model"] == file.parent.name
            }
            counted = {label.casefold(): value for label, value in printed.items() if value}
            author_values = {
                label: 100 * float(counted[label]) for label in counted.keys() - {"split", "overall", "none"}
            }
            assert author_values.keys() <= board_values.keys() and all(
                board_values[label] == pytest.approx(author_values[label]) for label in author_values
            )

    table = next(iter(tables.values()))
    pairs = table[table["department"] != ""].groupby(["department", "modality"]).size().sort_values().index[::12]
    selections = [
        ([["department", department], ["modality", modality]],
         (table["department"] == department) & (table["modality"] == modality))
        for department, modality in pairs
    ]  # fmt: skip
    branch = select_by_branches(table, ["department: Ophthalmology > Fundus Photography", "task: Severity Grading"])
    selections.append(([["department", "Ophthalmology", "Fundus Photography"], ["task", "Severity Grading"]], branch))
    for branches, mask in selections:
        standings = parse_query(service.board, {**request, "branches": branches}).standings
        assert len(standings.rows) == 5
        for row in standings.rows:
            hits = tables[row.entry.result.model.name]["hit"].astype(float)[mask]
            assert (row.score.n, row.score.value) == (int(mask.sum()), pytest.approx(100 * hits.mean())), branches
