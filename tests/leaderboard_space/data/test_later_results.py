"""Results since the papers: recomputed counts against the stored answers, and reported numbers,
which no rank, chart or headline may contain.

A contributor who adds a row to `published/reported.csv` runs this file.
"""

import csv
import html
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from itertools import product
from pathlib import Path

import pandas as pd
import pytest

from dataset_builders.benchmarks import BENCHMARKS, spec as dataset_spec
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.gmai_mmbench import read_official
from leaderboard_space.data.board import Board
from leaderboard_space.data.published_results import board_results, published_models, read_table, sources
from leaderboard_space.service import Service, tools
from leaderboard_space.views import compare, model, overview, search
from leaderboard_space.views.tables import unranked
from leaderboard_space.views.tables.unranked import reported_parts
from tests.leaderboard_space.checks.claims import plain
from tests.sampling import few

GRADES = ("A", "A-", "B+", "B", "B-")
"""Grades of sources that are good enough."""
REPORTED, RECOMPUTED = read_table("reported"), read_table("recomputed")
Counts = Counter[tuple[str, str, str]]
"""(metric, facet, facet value) -> count."""

# Recomputed results


def recomputed_counts(name: str) -> tuple[Counts, Counts]:
    """`right` and `n` of a model in the table."""
    right, n = Counts(), Counts()
    for row in RECOMPUTED:
        if row["model"] == name:
            place = row["metric"], row["facet"], row["facet_value"]
            assert place not in n, row
            right[place], n[place] = int(row["right"]), int(row["n"])
    return right, n


MODELS_WITH_ANSWERS = [
    ("Yi_VL_34B", "Yi-VL-34B"),
    ("huatuogpt-vision-7b", "HuatuoGPT-Vision-7B"),
    ("qwen-vl-7b-chat", "Qwen-VL-Chat"),
    ("qwen2-vl-2b-ins", "Qwen2-VL-2B-Instruct"),
    ("qwen2-vl-7b-ins", "Qwen2-VL-7B-Instruct"),
]
"""Folder of a model's answers, and its name; the answers of the other two models are not here."""


@pytest.mark.sources
@pytest.mark.parametrize(("folder", "name"), few(MODELS_WITH_ANSWERS, 1))
def test_the_counts_of_gmai_follow_from_the_stored_answers(sources: Path, folder: str, name: str) -> None:
    files = list(sources.glob(f"later_answers/gmai_vlmevalkit/{folder}/*_result.xlsx"))
    if not files:
        pytest.skip("the recorded answers are not here")
    table = pd.read_excel(files[0], keep_default_na=False, dtype=str)
    table["perceptual granularity"] = table["perceptual granularity"].str.title()
    facets = {"task": "clinical vqa task", "department": "department", "granularity": "perceptual granularity"}
    right, n, chance = Counts(), Counts(), defaultdict[tuple[str, str], float](float)
    for row in table.to_dict("records"):
        options = [row[c] for c in "ABCDE" if row[c]]
        choice = read_official(row["prediction"], options, "single").choice
        places = [(facet, row[column]) for facet, column in {**facets, "modality": "modality"}.items()]
        for facet, label in [("", ""), *(place for place in places if place[1])]:
            n["accuracy", facet, label] += 1
            right["accuracy", facet, label] += "".join(LETTERS[at] for at in choice) == row["answer"]
            chance[facet, label] += 100 / len(options)
    assert (right, n) == recomputed_counts(name)
    for row in RECOMPUTED:
        if row["model"] == name and row["chance"]:
            place = row["facet"], row["facet_value"]
            assert float(row["chance"]) == pytest.approx(chance[place] / n["accuracy", *place], abs=1e-5)
    # VLMEvalKit's own files of accuracies
    for facet, kind in (
        ("department", "department"),
        ("task", "clinical_vqa_task"),
        ("granularity", "perceptual_granularity"),
    ):
        (printed,) = csv.DictReader(next(files[0].parent.glob(f"*_{kind}_acc.csv")).open())
        counted = {place[2].casefold(): right[place] / n[place] for place in n if place[1] == facet}
        labels = [label for label, share in printed.items() if share and label not in ("split", "Overall", "None")]
        assert labels, facet
        for label in labels:
            assert counted[label.casefold()] == pytest.approx(float(printed[label])), (facet, label)


@pytest.mark.sources
def test_the_counts_of_mediconfusion_follow_from_the_stored_answers(sources: Path) -> None:
    file = sources / "later_answers/mediconfusion/gpt_mc.json"
    if not file.exists():
        pytest.skip("the recorded answers are not here")
    pairs = json.loads((sources / "mediconfusion/dataset.json").read_text(encoding="utf-8"))
    right, n = Counts(), Counts()
    for pair_id, answer in json.loads(file.read_text(encoding="utf-8")).items():
        pair, sides = pairs[pair_id], (1, 2)
        chosen = [answer["answer"][f"im{side}"]["answer"]["full_answer"] for side in sides]
        hits = [choice == pair[f"im_{side}_correct"] for choice, side in zip(chosen, sides, strict=True)]
        labels = [("category", label) for side in sides for label in pair[f"category_{side}"]]
        own_hits = [hit for hit, side in zip(hits, sides, strict=True) for _ in pair[f"category_{side}"]]
        for place, hit in zip([("", ""), ("", ""), *labels], [*hits, *own_hits], strict=True):
            n["individual_accuracy", *place] += 1
            right["individual_accuracy", *place] += hit
        for place in [("", ""), *labels]:
            n["set_accuracy", *place] += 1
            right["set_accuracy", *place] += all(hits)
        if set(chosen) <= {"A", "B"}:
            n["confusion", "", ""] += 1
            right["confusion", "", ""] += chosen[0] == chosen[1]
    assert (right, n) == recomputed_counts("GPT-4o")


def test_the_counts_of_each_facet_add_up() -> None:
    for name in {row["model"] for row in RECOMPUTED if row["benchmark"] == "gmai-mmbench"}:
        right, n = recomputed_counts(name)
        for counts, facet in product((right, n), ("task", "granularity", "modality", "department")):
            total = sum(count for place, count in counts.items() if place[1] == facet)
            # 425 questions have no department.
            assert total == counts["accuracy", "", ""] or (facet == "department" and total < 4550), (name, facet)
    assert all(int(row["right"]) <= int(row["n"]) >= int(row["n_cases"]) for row in RECOMPUTED)


def test_recomputed_results_are_ranked_with_the_papers_and_named_by_their_evidence(papers_board: Service) -> None:
    api = {tool.__name__: tool for tool in tools(papers_board.board)}
    rows = api["leaderboard"]("gmai-mmbench", question_set="validation.complete", every_run=True)
    recomputed = {row["model"]: row for row in rows if row["kind"] == "recomputed"}
    assert {row["kind"] for row in rows} == {"printed", "recomputed"} and len(recomputed) == 7
    for name, row in recomputed.items():
        right, n = recomputed_counts(name)
        place = "accuracy", "", ""
        assert row["value"] == pytest.approx(100 * right[place] / n[place]) and row["n"] == n[place]
        assert row["low"] < row["value"] < row["high"] and row["place_first"] and row["table"] == "stored answers"
        assert row["source"].endswith(sources()["S13"]["link"])
    cells = api["breakdown"]("gmai-mmbench", "modality", question_set="validation.complete")
    assert len(cells) == 7 * 24 and {row["kind"] for row in cells} == {"recomputed"}


# The table of reported numbers


def scores_of(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in ("benchmark", "split", "model", "metric", "facet", "facet_value", "method"))


def test_reported_numbers_are_described() -> None:
    """Every column is filled, with "not stated" where the source says nothing; the source is good
    enough; and the value is a count of n questions, rounded.
    """
    optional = {"facet", "facet_value", "n", "note"}
    for row in REPORTED:
        assert [name for name, content in row.items() if not content.strip() and name not in optional] == [], row
        source, value = sources()[row["source"]], float(row["value"])
        assert source["grade"] in GRADES and source["reason"], row
        assert re.match("https://(github.com|arxiv.org)/", source["link"]), row
        assert row["metric"] in eval_spec(row["benchmark"]).metrics and row["benchmark"] in BENCHMARKS, row
        assert bool(row["facet"]) == bool(row["facet_value"]), row
        assert row["facet"] in ("", *dataset_spec(row["benchmark"]).facets), row
        date.fromisoformat(f"{row['date']}-01"[:10])
        assert 0 <= value <= 100, row
        if row["n"]:
            n, half = int(row["n"]), 0.5 * 10 ** -len(row["value"].partition(".")[2])
            whole = round(value * n / 100)
            assert abs(100 * whole / n - value) <= half + 1e-9, f"the value is no count of n: another n? {row}"


def test_contradictions_are_noted_and_nothing_is_listed_twice() -> None:
    """A number that differs from another of the same model, split, score and method says so."""
    numbers = defaultdict(set)
    for result in board_results():
        places = {("", ""): result.scores} | {(f, v): s for f, vs in result.breakdown.items() for v, s in vs.items()}
        for (facet, label), scores in places.items():
            for metric, score in scores.items():
                key = (result.benchmark.name, result.benchmark.split, result.model.name, metric, facet, label)
                numbers[*key, result.method.name].add(score.value)
    printed = {key: set(values) for key, values in numbers.items()}
    for row in REPORTED:
        numbers[scores_of(row)].add(float(row["value"]))
    for row in REPORTED:
        differs = any(abs(value - float(row["value"])) > 0.01 for value in numbers[scores_of(row)])
        assert row["note"] or not differs, (
            f"other values are known: {numbers[scores_of(row)]}. Say why in `note`: {row}"
        )
        repeats = float(row["value"]) in printed.get(scores_of(row), ())
        assert row["note"] or not repeats, f"the board has this number already: {row}"
    lines = Counter((*scores_of(row), row["source"], row["date"], row["harness"]) for row in REPORTED)
    assert lines.most_common(1)[0][1] == 1
    assert {row["source"] for row in (*REPORTED, *RECOMPUTED)} == set(sources())


# On the board


def test_the_section_lists_every_row_side_by_side_with_its_spread(papers_board: Service) -> None:
    api = {tool.__name__: tool for tool in tools(papers_board.board)}
    for family in BENCHMARKS:
        rows = [row for row in REPORTED if row["benchmark"] == family]
        _, section = reported_parts(family)
        assert section in papers_board.breakdown({"format": family})
        table = api["reported"](family)
        assert len(table) == len(rows) and all(row["kind"] == "reported" for row in table)
        if not rows:
            assert section == ""
            continue
        exported = papers_board.export({"format": family, "of": "reported", "as": "json"})["text"]
        assert json.loads(exported) == table
        assert re.match(r'<details class="reported" data-keep="reported"><summary>', section)  # closed at first
        values = defaultdict(list)
        for row in rows:
            values[scores_of(row)[:-1]].append(float(row["value"]))
        spreads = re.findall(r'<td rowspan="(\d+)">(.*?)</td>', section)
        assert spreads == [(str(len(of)), f"{max(of) - min(of):.1f}" if of[1:] else "") for of in values.values()]
        lines = re.findall(r"<tr>(?!<th scope=.col).*?</tr>", section)
        for row, line in zip(rows, lines, strict=True):
            shown = html.unescape(plain(line))
            n = f"{int(row['n']):,}" if row["n"] else "not stated"
            parts = (
                row["value"],
                n,
                row["run_by"],
                row["harness"],
                row["trained_on_sources"],
                row["date"],
                row["place"],
            )
            assert all(part in shown for part in (*parts, row["note"], sources()[row["source"]]["title"])), row
            assert f'href="{html.escape(sources()[row["source"]]["link"])}"' in line


def pages(board: Board) -> Iterator[tuple[str, str]]:
    """Every kind of page, chart, headline, rank and file, with the reported section cut out."""
    service = Service(board)
    api = {tool.__name__: tool for tool in tools(board)}
    yield "overview", overview.page(board, {"all": "yes"})
    yield "overview file", overview.file(board, {"as": "csv"})["text"]
    for name in ("GPT-4o", "Qwen-VL-Chat", "Invented model"):
        yield name, model.page(board, {"id": name})
        yield f"search {name}", str(search.answer(board, {"query": name}))
    yield "compare", compare.page(board, {"first": "GPT-4o", "second": "o1"})
    for section in board.snapshot.all_sections:
        for shown in ("one", "all"):
            request = {"format": section.family, "section": section.key, "shown": shown}
            name = f"{section.family} {section.key} {shown}"
            yield name, service.view(request)["html"]
            yield f"{name} charts", service.breakdown(request).replace(reported_parts(section.family)[1], "")
            yield f"{name} citation", service.cite(request)
            for table in ("leaderboard", "breakdown"):
                yield f"{name} {table}", service.export({**request, "of": table, "as": "csv"})["text"]
        yield f"{section.key} api", str(api["leaderboard"](section.family, question_set=section.key))


def test_no_rank_chart_or_headline_contains_a_reported_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented numbers, of models on the board and of others, far above all results: whatever is
    drawn or saved outside their section is the same as without them.
    """
    rng = random.Random(1)
    names = ["Invented model", *rng.sample(sorted(published_models()), 6), "GPT-4o"]
    invented = [
        {**row, "model": rng.choice(names), "value": f"9{rng.randint(0, 9)}.{rng.randint(10**5, 10**6)}"}
        for row in rng.sample(REPORTED, 60)
    ]

    def drawn_with(rows: list[dict[str, str]]) -> dict[str, str]:
        monkeypatch.setattr(unranked, "read_table", lambda _: tuple(rows))
        unranked.reported_groups.cache_clear()
        return dict(pages(Board(None, board_results())))

    without, drawn = drawn_with([]), drawn_with(invented)
    unranked.reported_groups.cache_clear()
    for name, page in drawn.items():
        left_out = re.sub(
            r" Not shown: numbers that other sources report on [\d,]+ models?; they are listed below\.", "", page
        )
        assert left_out == without[name], name
        assert not any(row["value"][:7] in page for row in invented), name
    assert sum(page != without[name] for name, page in drawn.items()) >= 3  # a chart by date says it
