"""Check that no page, file or tool of the board judges or ranks a run whose answers mostly tell
nothing about the model; each names the cause.
"""

import html
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS, FACETS_BY_BENCHMARK
from eval_harness.derive.metrics import HEADLINE_METRICS, METRICS
from leaderboard_space.data.board import Board
from leaderboard_space.service import Service, tools
from leaderboard_space.views import compare, model
from leaderboard_space.views.overview import load_overview
from tests.leaderboard_space.stores import add_run, answers, change, questions
from tests.sampling import few
from tests.silent_answers import SILENT, Mixture, is_untested, mixture, scope

SILENT_RUN_CASES = [(family, seed) for seed in range(1) for family in BENCHMARKS]
JUDGED = re.compile(r"significantly (better|worse)|not significantly different|better than|worse than|[▲▼≈]")


def make(store: Path, family: str, seed: int) -> tuple[pd.DataFrame, dict[str, Mixture]]:
    """Make a store of a format with three runs that know some answers, and three whose answers have
    every status: the questions, and the answers of each by name.
    """
    rng = np.random.default_rng([seed, 9, BENCHMARKS.index(family)])
    question_table = questions(family, int(rng.choice([6, 36])), seed=seed)
    answers_by_model = {}
    for at, skill in enumerate((0.2, 0.6, 0.9)):
        good = answers(question_table, skill, seed=at).assign(status="answered")
        answers_by_model[f"Good {at}"] = Mixture(good, good)
        add_run(store, family, question_table, answers(question_table, skill, seed=at), f"Good {at}", origin="official")
    for at in range(3):
        answers_by_model[f"Mixed {at}"] = mixture(question_table, rng)
        extraction = "official" if at == 2 else "ours"
        folder = add_run(
            store,
            family,
            question_table,
            answers_by_model[f"Mixed {at}"].answers,
            f"Mixed {at}",
            extraction=extraction,
            origin="official",
        )
        change(folder, lambda result: result["method"].update(generation={"max_tokens": 8}))
    return question_table, answers_by_model


def names_the_causes(sentence: str, counts: dict[str, int]) -> bool:
    return all((words in sentence) == (counts[status] > 0) for status, words in SILENT.items())


def is_unjudged(row: dict[str, Any], counts: dict[str, int], official: bool, of_ends: bool) -> None:
    assert row["verdict"] in (None, "") and row.get("place_first") in (None, "")
    is_undefined = row["metric"] == "answered_accuracy" and not counts["answered"]
    assert (row["value"] in (None, "")) == (is_undefined or not (official or of_ends))
    assert names_the_causes(row["no_score"], counts)


@pytest.mark.parametrize(("family", "seed"), few(SILENT_RUN_CASES))
def test_nothing_on_the_board_judges_a_run_that_mostly_says_nothing(tmp_path: Path, family: str, seed: int) -> None:
    asked_questions, answers_by_model = make(tmp_path, family, seed)
    board = Board(tmp_path)
    service = Service(board)
    section = board.snapshot.sections[family][0]
    keys = {entry.result.model.name: entry.key for entry in section.entries}
    loaded = board.outcomes(section)
    assert loaded is not None and loaded[0] is not None
    question_table = loaded[0].questions
    metric = HEADLINE_METRICS[family]
    for name in (metric, "abstained", "answered_accuracy"):
        silent = {
            model_name: answer_table.counts(scope(family, name, question_table))
            for model_name, answer_table in answers_by_model.items()
            if answer_table.is_silent(scope(family, name, question_table))
        }
        untested = {
            model_name
            for model_name, answer_table in answers_by_model.items()
            if is_untested(family, name, asked_questions, answer_table.answers)
        }
        request = {"format": family, "section": section.key, "metric": name, "shown": "all"}
        rows = json.loads(service.export(request | {"as": "json"})["text"])
        assert len(rows) == 6
        for row in rows:
            assert bool(row["no_score"]) == (row["model"] in silent or row["model"] in untested), row
            assert not row["no_score"] or row["verdict"] in (None, "")
            if row["model"] in silent:
                is_unjudged(row, silent[row["model"]], row["model"] == "Mixed 2", METRICS[name].of_ends)
                assert row["group"] == "no score"
        page = service.view(request)["html"]
        for model_name, counts in silent.items():
            line = re.search(rf'<tr class="([^"]*)" data-key="{re.escape(keys[model_name])}">.*?</tr>', page, re.DOTALL)
            assert line and "v-untested" in line[1]
            assert names_the_causes(html.unescape(re.findall(r"<small>(.*?)</small>", line[0])[0]), counts)
            assert not re.search(r'class="place"[^>]*>\d', line[0])
        finding = re.search(r'<h2 class="finding">(.*?)</h2>', page)
        assert finding and not any(model_name in finding[1] for model_name in silent)

        if name == metric:
            judged = answers_by_model.keys() - silent.keys() - untested
            of_headline = silent

    silent = of_headline
    leaderboard, breakdown = (tool for tool in tools(board) if tool.__name__ in ("leaderboard", "breakdown"))
    for row in leaderboard(family, metric=metric, every_run=True):
        assert bool(row["no_score"]) == (row["model"] not in judged)
    for facet in FACETS_BY_BENCHMARK[family][:3]:
        for row in breakdown(family, facet, metric=metric):
            if row["no_score"]:
                counted = re.match(r"no (score|verdict): ([\d,]+) of ([\d,]+) answers", row["no_score"])
                assert row["verdict"] is None
                assert counted or row["no_score"].startswith("too few independent")
                if counted:
                    lost, responses = (int(number.replace(",", "")) for number in counted.group(2, 3))
                    is_shown = 2 * lost <= responses or row["model"] == "Mixed 2"
                    assert (row["value"] is None, counted[1]) == ((False, "verdict") if is_shown else (True, "score"))
                    assert any(words in row["no_score"] for words in SILENT.values())

    overview = load_overview(board, board.snapshot)
    for model_name, counts in silent.items():
        assert all(not line.rows for line in overview.rows if line.name == model_name)
        page = html.unescape(model.page(service.board, {"id": model_name}))
        finding = re.search(r'<h3 class="finding">(.*?)</h3>', page)
        assert finding and not JUDGED.search(finding[1])
        verdicts = re.search(r'data-table="verdicts".*?</table>', page, re.DOTALL)
        assert verdicts and not JUDGED.search(verdicts[0]) and names_the_causes(verdicts[0].split("not run")[0], counts)
        compared = {
            "set": f"{family}/{section.key}",
            "metric": metric,
            "first": keys[model_name],
            "second": keys["Good 1"],
        }
        page = html.unescape(compare.page(board, compared))
        finding = re.search(r'<h2 class="finding">(.*?)</h2>', page)
        assert finding and "cannot be compared" in finding[1]
        note = next(note for note in re.findall(r'<p class="note">(.*?)</p>', page) if "answers" in note)
        assert names_the_causes(note, counts)
        table = json.loads(compare.file(board, compared | {"of": "scores", "as": "json"})["text"])
        assert any(
            row["metric"] == metric and names_the_causes(row["no_score"], counts) for row in table if "no_score" in row
        )
        assert not [row for row in table if row["metric"] == metric and row.get("p") is not None]
