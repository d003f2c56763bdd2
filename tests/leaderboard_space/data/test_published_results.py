"""Test the published numbers: every digit in `published/` against the papers' text (whole printed
lines are compared, so that no cell, column or row can be lost or moved), the numbers as results,
and all results as one table.
"""

import csv
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.proportion import proportion_confint

from benchmarks.scoring.interval_coverage import MEDICONFUSION
from dataset_builders.benchmarks.halt_medvqa.reader import read as read_halt
from eval_harness.records.result import Benchmark, Method, Model, Result, Score
from eval_harness.scores.grading import image_clusters
from eval_harness.scores.intervals import INTERVAL_METHOD
from eval_harness.store.results_table import RESULT_COLUMNS, tidy_table, variant
from leaderboard_space.benchmarks import board_spec
from leaderboard_space.data.published_results import (
    PUBLISHED_FOLDER,
    board_results,
    printed_cells,
    published_results,
    read_table,
    recomputed_cells,
    selects_cell,
    valid_pairs,
)

NUMBER = re.compile(r"\d+(\.\d+)?( ± \d+\.\d+| \([-+]\d+\.\d+\))?")
PAPER_RESULTS = published_results()
PRINTED = [row["table"] for row in read_table("tables")]
ABOUT = (
    "papers",
    "tables",
    "cells",
    "notes",
    "models",
    "model_facts",
    "model_names",
    "sources",
    "recomputed",
    "reported",
)  # no printed tables
TABLE = tidy_table(PAPER_RESULTS)


def rows(name: str) -> list[dict[str, str]]:
    with (PUBLISHED_FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def the_cell(table: str, model: str, metric: str, facet_value: str | None = None, **conditions: str) -> pd.Series:
    rows = TABLE[(TABLE["table"] == table) & (TABLE["model"] == model) & (TABLE["metric"] == metric)]
    rows = rows[rows["facet_value"] == facet_value] if facet_value else rows[rows["facet_value"].isna()]
    for column, value in conditions.items():
        rows = rows[rows[column] == value]
    assert len(rows) == 1, rows
    return rows.iloc[0]


# The papers, read by a person


@pytest.mark.parametrize(
    ("benchmark", "table", "model", "metric", "facet_value", "location", "value", "n", "n_cases"),
    [
        ("mediconfusion", "Table 1", "Claude 3 Opus", "confusion", None, {"method": "mc"}, 84.09, 132, 132),
        ("mediconfusion", "Table 1", "Gemini 2.0 Flash", "individual_accuracy", None, {"method": "best"}, 61.93, 352, 176),
        ("mediconfusion", "Table 2", "Gemini 2.0 Flash", "individual_accuracy", "Spinal", {}, 58.86, 51, 31),
        ("mediconfusion", "Table 4", "InstructBLIP-7B", "set_accuracy_std", None, {"prompt": "mc-9"}, 3.15, 176, 176),
        ("mediconfusion-easy", "Table 6", "GPT-4o", "set_accuracy", None, {}, 98.38, 988, 988),
        ("mediconfusion", "Table 7", "LLaVA-Med-v1.5 + DINOv2", "confusion", None, {"method": "mc"}, 95.54, 157, 157),
        ("mediconfusion", "Table 9", "GPT-4o", "invalid", None, {"variant": "best of 50 by self-ranking; 50 samples"}, 38.64, 352, 176),
        ("probmed-vqa-rad", "Table 3", "LLaVA-Med", "accuracy", None, {}, 3.38, 118, 118),
        ("probmed", "Table 6", "Gemini Pro", "accepts_hallucination", "position", {}, 76.68, None, None),
        ("probmed", "Table 7", "GPT-4o", "position", "brain_ct", {}, 26.31, 270, 190),
        ("probmed", "Table 18", "Random guessing", "condition", "abdomen_xray", {}, 36.55, 232, 232),
        ("gmai-mmbench", "Table 10", "GPT-4o", "accuracy", "Organ Recognition - Abdomen", {}, 53.79, 950, 950),
        ("gmai-mmbench", "Table 11", "DeepSeek-VL-7B", "accuracy", "Orthopedic Surgery", {}, 49.97, 1605, 1605),
        ("gmai-mmbench", "Table 12", "CogVLM-Chat", "mcq_recall", None, {"prompt": "multiple"}, 90.26, 15691, 743),
        ("halt-medvqa", "Table 1", "LLaVA-Med-v1.0-pvqa", "average_irrelevant", None, {}, 770.7, 2361, 2361),
        ("halt-medvqa", "Table 7", "LLaVA-v1.5-13B", "average", None, {"prompt": "L+A1+D0"}, 40.11, 2361, 2361),
    ],
)  # fmt: skip
def test_cells(benchmark, table, model, metric, facet_value, location, value, n, n_cases):
    cell = the_cell(table, model, metric, facet_value, benchmark=benchmark, **location)
    assert cell["value"] == value
    assert cell["kind"] == "printed"
    if n is not None:
        assert (cell["n"], cell["n_cases"]) == (n, n_cases)


def test_every_number_of_every_table_is_a_score_once():
    for table in PRINTED:
        lines = rows(table)
        labels = int(next(row["labels"] for row in rows("tables") if row["table"] == table))
        printed = [
            (" / ".join(list(line.values())[:labels]).strip(" /"), column)
            for line in lines
            for column, cell in list(line.items())[labels:]
            if NUMBER.fullmatch(cell) and next(iter(line.values())) != "num"
        ]
        assert Counter((cell.row, cell.column) for cell in printed_cells(table)) == Counter(printed), table
    spreads = sum(cell.spread is not None for table in PRINTED for cell in printed_cells(table))
    printed_count = sum(len(list(printed_cells(table))) for table in PRINTED) + spreads
    assert Counter(TABLE["kind"]) == {"printed": printed_count, "recomputed": len(rows("recomputed"))}
    key = ["table", "benchmark", "split", "model", "method", "prompt", "variant", "metric", "facet", "facet_value"]
    assert not TABLE.duplicated(key).any()


# The tables about the tables


def test_no_line_of_the_descriptions_is_idle():
    for name in ("cells", "notes"):
        for line in rows(name):
            cells = recomputed_cells() if line["table"] == "recomputed" else printed_cells(line["table"])
            selected_cells = [cell for cell in cells if selects_cell(line, cell.row, cell.column)]
            assert selected_cells, line
    assert {path.stem for path in PUBLISHED_FOLDER.glob("*.csv")} == {*PRINTED, *ABOUT}


def test_names_of_models():
    models = rows("models")
    assert Counter(row["name"] for row in models).most_common(1)[0][1] == 1
    for paper in ("mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa"):
        labels = [label for row in models for label in row[paper].split("; ") if label]
        assert len(labels) == len(set(labels))
    assert {result.model.name for result in PAPER_RESULTS} == {row["name"] for row in models}


@pytest.mark.parametrize("number", [10, 11])
def test_derived_counts_of_gmai(number):
    """The stated count is the smallest of which every model's percentage (except two models') is a
    fraction.
    """
    columns: dict[str, list[float]] = {}
    stated = {}
    for cell in printed_cells(f"gmai_mmbench_table{number}"):
        if "LLaVA-NeXT" not in cell.row and cell.column not in ("Overall(test)", "DD"):
            columns.setdefault(cell.column, []).append(cell.value)
            stated[cell.column] = int(cell.about["n"])

    def fits(value: float, n: int) -> bool:
        return abs(round(100 * round(value * n / 100) / n, 2) - value) <= 0.0051

    for column, values in columns.items():
        smallest = next(n for n in range(20, 5000) if all(fits(value, n) for value in values))
        assert smallest == stated[column], column


# Counts, intervals, chance


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ((176, 18.75, 56.25, 75.00), 176),  # GPT-4o: 33 pairs right, 132 confused, 198 answers right
        ((176, 21.59, 57.95, 72.99), 174),  # o1
        ((176, 8.52, 50.85, 84.09), 132),  # Claude 3 Opus
        ((176, 29.55, 61.93, 67.05), 0),  # Gemini 2.0 Flash contradicts itself
        ((176, 0.57, 17.05, 98.30), 59),  # Med-Flamingo FF with the confusion printed under PS
        ((176, 4.55, 51.99, 94.89), 176),  # Med-Flamingo PS with the confusion printed under FF
    ],
)
def test_valid_pairs(printed, expected):
    assert valid_pairs(*printed) == expected


def test_intervals():
    for result in PAPER_RESULTS:
        for scores in [result.scores, *(s for values in result.breakdown.values() for s in values.values())]:
            for metric, score in scores.items():
                if metric.endswith("_irrelevant") or metric.endswith("_std") or score.n_cases == 0:
                    assert score.low is None and score.verdict is None
                    continue
                assert 0 <= score.low <= score.value <= score.high <= 100
                assert score.interval_method == INTERVAL_METHOD and 0 < score.n_effective <= score.n_cases
                expected = proportion_confint(score.value * score.n_effective / 100, score.n_effective, method="beta")
                assert (score.low, score.high) == pytest.approx([100 * end for end in expected], abs=1e-6)
                if (band := score.chance_interval) is not None:  # the difference to the random run is tested
                    assert (score.low <= band[1] and band[0] <= score.high) or score.verdict != "no different"
                    continue
                outside = score.chance is not None and not score.low <= score.chance <= score.high
                assert score.verdict is None or (score.verdict != "no different") == outside
    cell = the_cell("Table 1", "Gemini 2.0 Flash", "set_accuracy", method="mc")
    # 52 of 176 pairs in 60 components: a design effect of at least 1 + (176 / 60 - 1) / 52 = 1.037,
    # t (17.1 degrees of freedom) 2.11
    assert cell["n_effective"] == pytest.approx(176 / 1.0372 * (1.9600 / 2.1085) ** 2, rel=1e-3)
    assert (round(cell["low"], 1), round(cell["high"], 1)) == (22.3, 37.6)


@pytest.mark.sources
def test_components_are_those_of_the_dataset(sources: Path):
    path = sources / "mediconfusion" / "dataset.json"
    pairs = list(json.loads(path.read_text(encoding="utf-8")).values())
    cluster = image_clusters(
        pd.DataFrame(
            {
                "case_id": np.repeat(np.arange(len(pairs)), 2),
                "image_id": [pair[side] for pair in pairs for side in ("im_1", "im_2")],
            }
        )
    )[::2]
    assert sorted(np.bincount(cluster), reverse=True) == sorted(MEDICONFUSION, reverse=True)
    for category, sharing in board_spec("mediconfusion").cases_sharing.items():
        labelled = [not category or category in pair["category_1"] + pair["category_2"] for pair in pairs]
        many = np.bincount(cluster[labelled])
        many = many[many > 0]
        assert sharing == pytest.approx((many.mean(), (many**2).sum() / many.sum()), abs=0.006), category


# One result per model, for the board


def test_board_results():
    merged = board_results()
    keys = [
        (
            r.kind,
            r.benchmark.name,
            r.benchmark.split,
            r.model.name,
            r.method.name,
            r.method.prompt,
            str(r.method.generation),
        )
        for r in merged
    ]
    assert len(keys) == len(set(keys))
    gpt = next(r for r in merged if r.model.name == "GPT-4o" and r.benchmark.name == "probmed")
    assert gpt.scores["overall"].value == 55.60
    assert len(gpt.breakdown["image_type"]) == 12
    assert gpt.source.table.startswith("Tables 4, 5, 7")
    gmai = next(
        r
        for r in merged
        if (r.model.name, r.benchmark.name, r.benchmark.split, r.method.prompt)
        == ("GPT-4o", "gmai-mmbench", "test", "single")
    )
    assert gmai.scores["accuracy"].value == 53.96 and "53.88" in gmai.source.note
    assert {facet: len(values) for facet, values in gmai.breakdown.items()} == {
        "task": 18,
        "department": 18,
        "granularity": 4,
    }
    assert not any("variant" in r.method.generation for r in merged)  # no oracle among the models
    best = max(r.scores["set_accuracy"].value for r in merged if r.benchmark.name == "mediconfusion")
    assert best == 29.55
    assert len(published_results()) == len(PAPER_RESULTS)  # merging does not change the other results
    assert published_results() == PAPER_RESULTS


# The table of all results


def _measured(**changes: object) -> Result:
    values = {
        "kind": "measured",
        "provenance": "reproduced",
        "benchmark": Benchmark(name="probmed", format="probmed", split="test", questions=2, selection="--limit 2"),
        "model": Model(name='mine, or "yours"'),
        "method": Method(name="mc", prompt="question", shots=0, samples=3, extraction="official"),
        "scores": {"overall": Score(value=None, n=0, n_cases=0)},
        "breakdown": {"organ": {"chest": {"overall": Score(value=50.0, low=1.0, high=99.0, n=2, n_cases=1)}}},
        "created_at": "2026-01-01T00:00:00+00:00",
    }
    return Result.model_validate(values | changes)


def test_tidy_of_measured_results():
    table = tidy_table([_measured()])
    assert list(table.columns) == list(RESULT_COLUMNS)
    overall, part = table.to_dict("records")
    assert pd.isna(overall["value"]) and overall["n"] == 0
    numbers = [part[name] for name in ("facet", "facet_value", "value", "low", "high", "n", "n_cases")]
    assert numbers == ["organ", "chest", 50.0, 1.0, 99.0, 2, 1]
    assert list(tidy_table([_measured(deviations=["one", "two"])])["note"]) == ["one; two"] * 2
    assert part["variant"] == "3 samples; extraction official; --limit 2"
    assert part["source"] == "reproduced" and part["model"] == 'mine, or "yours"'
    assert variant(_measured(method=Method(name="mc"), benchmark=PAPER_RESULTS[0].benchmark)) is None


# The digits, against the papers' text

ICLR, ARXIV = "mediconfusion_iclr2025.txt", "mediconfusion_arxiv.txt"
PLACES: dict[str, list[tuple[str, str, str]]] = {
    "mediconfusion_table1": [(ICLR, "Table 1:", "Based on these guidelines"), (ARXIV, "Table 1:", "Gemini models are")],
    "mediconfusion_table2": [(ICLR, "\tCerebral", "Table 2:"), (ARXIV, "Table 2:", "4. Discussion")],
    "mediconfusion_table4": [(ICLR, "Table 4:", "### C"), (ARXIV, "Table 5:", "D. Fine")],
    "mediconfusion_table6": [(ARXIV, "Table 6:", "^We believe")],
    "mediconfusion_table7": [(ICLR, "Table 7 compares", "Table 7:")],
    "mediconfusion_table8": [(ICLR, "Table 8:", "The best-of-N"), (ARXIV, "Table 8:", "H.1.")],
    "mediconfusion_table9": [(ICLR, "Self-consistency", "Table 9:"), (ARXIV, "Table 9:", "Table 10:")],
    "mediconfusion_table10": [(ICLR, "Table 9:", "Table 10:"), (ARXIV, "Table 10:", "H.2.3")],
    "probmed_table3": [("probmed.txt", "Table 3:", "Table 4:")],
    "probmed_table4": [("probmed.txt", "Table 4:", "4.1.2")],
    "probmed_table5": [("probmed.txt", "Table 5:", "the existence of abnormalities")],
    "probmed_table6": [("probmed.txt", "Table 6:", "and positions.")],
    **{f"probmed_table{k}": [("probmed.txt", f"Table {k}:", "^A.|^B ")] for k in range(7, 19)},
    "gmai_mmbench_table10": [("gmai_mmbench.txt", "E.1 Quantitative", "CS \\| D \\| E")],
    "gmai_mmbench_table11": [("gmai_mmbench.txt", "CS \\| D \\| E", "Model name \\| Size")],
    "gmai_mmbench_table12": [("gmai_mmbench.txt", "Model name \\| Size", "E.2 Case")],
    "halt_medvqa_table1": [("halt_medvqa.txt", "Table 1:", "5 Conclusion")],
    "halt_medvqa_table7": [("halt_medvqa.txt", "Table 7:", "$^")],
}
"""Table -> (paper's text, pattern of the line before the table, pattern of the line after it); if
there are several places, all must agree.
"""


def plain(line: str) -> str:
    """Return a printed line without markup, citations and separators; two labels that the ICLR text
    garbles are corrected.
    """
    line = re.sub(r"</?\w+>|\*\*|\\ul|\$|\\cite\w*", "", line).replace("\\pm", " ± ")
    line = re.sub(r"\[\d+\]", "", line)
    line = " ".join(re.sub(r"[|\t]", " ", line).split())
    return re.sub(r"^01 ", "o1 ", re.sub(r"^GPT-40 ", "GPT-4o ", line))


def printed_lines(text: str, start: str, end: str) -> list[str]:
    """Return the lines of a region that end in two numbers (or empty cells), without markup."""
    lines = text.split("\n")
    places = [number for number, line in enumerate(lines) if re.match(start, line)]
    start_index = places[-1] if start.startswith("CS") else places[0]
    end_index = next((n for n in range(start_index + 1, len(lines)) if re.match(end, lines[n])), len(lines))
    number = r"(?:\(?[-+]?\d+(?:\.\d+)?\)?|-|/)"
    texts = (plain(line) for line in lines[start_index + 1 : end_index])
    return [line for line in texts if re.search(rf"(?:^| ){number}(?: ±)? {number}$", line)]


def our_lines(table: str) -> list[str]:
    """Return the rows of the CSV as the paper prints them: a label that spans several lines is on
    the first of them only.
    """
    with (PUBLISHED_FOLDER / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))[1:]
    lines, previous_label = [], ""
    for row in rows:
        cells = row[1:] if table.startswith("probmed") and row[0] == previous_label else row
        previous_label = row[0]
        lines.append(plain(" ".join(cell for cell in cells if cell)))
    return lines


@pytest.mark.sources
def test_every_table_has_a_place() -> None:
    assert sorted(PLACES) == sorted(row["table"] for row in read_table("tables"))


@pytest.mark.sources
@pytest.mark.parametrize("table", sorted(PLACES))
def test_lines_are_the_papers(table: str, papers: Path) -> None:
    csv_lines = our_lines(table)
    for name, start, end in PLACES[table]:
        assert printed_lines((papers / name).read_text(encoding="utf-8"), start, end) == csv_lines


HEADINGS = {
    "mediconfusion_table2": " / (?:Set|Indiv.)",
    "mediconfusion_table4": "",
    "probmed_table5": "Overall",
    **{f"probmed_table{k}": "" for k in range(7, 19)},
    "gmai_mmbench_table10": r"Overall\(\w+\)",
    "gmai_mmbench_table11": r"Overall\(\w+\)",
    "gmai_mmbench_table12": "",
}
"""Tables whose column headings are one printed line -> what the CSV's headings contain in
addition.
"""


@pytest.mark.sources
@pytest.mark.parametrize("table", sorted(HEADINGS))
def test_columns_stand_in_the_papers_order(table: str, papers: Path) -> None:
    with (PUBLISHED_FOLDER / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        head = [re.sub(HEADINGS[table], "", name) for name in next(csv.reader(file))[1:]]
    line = plain(" ".join(dict.fromkeys(name for name in head if name)))
    text = (papers / PLACES[table][0][0]).read_text(encoding="utf-8")
    assert any(plain(printed).endswith(line) for printed in text.split("\n")), line


@pytest.mark.sources
def test_interleaved_table_of_the_iclr_text(papers: Path) -> None:
    """The ICLR text prints both models of Table 6 in one line, cell by cell."""
    text = plain((papers / ICLR).read_text(encoding="utf-8"))
    odd, even = (line.split() for line in our_lines("mediconfusion_table6"))
    pairs = zip(odd[1:], even[1:], strict=True)
    assert " ".join(f"{a} {b}" for a, b in pairs) in text


@pytest.mark.sources
def test_pairs_per_category(sources: Path) -> None:
    """n = labels on images, n_cases = pairs with the label on either image."""
    pairs = json.loads((sources / "mediconfusion/dataset.json").read_text(encoding="utf-8")).values()
    labels = Counter(label for pair in pairs for side in ("category_1", "category_2") for label in pair[side])
    cases = Counter(label for pair in pairs for label in {*pair["category_1"], *pair["category_2"]})
    stated = {
        (cell.about["facet_value"], int(cell.about["n"]), int(cell.about["n_cases"]))
        for cell in printed_cells("mediconfusion_table2")
    }
    assert stated == {(label, n, cases[label]) for label, n in labels.items()}


@pytest.mark.sources
def test_chance_of_halt(sources: Path) -> None:
    questions = [case.questions[0] for case in read_halt(sources / "halt_medvqa", None).cases["test"]]
    chance = board_spec("halt-medvqa").chance
    for scenario in ("fake", "none", "swap"):
        shares = [1 / len(q.options) for q in questions if q.extra["scenario"] == scenario]
        assert chance[scenario] == pytest.approx(100 * sum(shares) / len(shares), abs=1e-5)
    assert chance["average"] == pytest.approx((chance["fake"] + chance["none"] + chance["swap"]) / 3, abs=1e-5)
