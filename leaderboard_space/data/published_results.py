"""Convert the papers' printed numbers, and counts from published answers, into results.

`published/` contains the printed tables as CSVs, in their layout and with their digits, and the
tables that describe them:

`papers.csv` (citation, date), `tables.csv` (number, benchmark, a note on the table), `cells.csv`
(metric, facet, method, n of the cells of a row, a column or both), `notes.csv` (where a paper
contradicts itself) and `models.csv` (one name per model; the label that each paper prints for it;
distinct versions stay distinct).

`recomputed.csv` contains counts from answers that other people published, read with the authors'
own reader (GMAI-MMBench: VLMEvalKit's rule of 2024-03 to 2025-08, that of the paper), and the exact
chance of a label's questions, where the paper has no random run by label; `sources.csv` describes
the sources. These become results of kind `recomputed`. See also: numbers that other
sources report without answers, which never become results (`views/tables/unranked.py`).

A printed number becomes a score (`cell_score`) with its n, interval, chance and verdict. Sources of
the counts that a paper does not print:
- MediConfusion, Table 2: `n` counts image labels (the authors' statistics.json); `n_cases` counts
  the pairs that have the label on either image, counted once in the authors' dataset.json: 45
  Cerebral ... 7 Nuclear Medicine.
- MediConfusion, confusion: `valid_pairs` below.
- ProbMed: the printed row `num`; for position, `n_cases` is the smallest denominator that yields
  the printed percentages of the open models.
- GMAI-MMBench: the smallest denominator that yields the printed percentages of all models but two;
  see the notes on the tables.
- GMAI-MMBench, multiple choice: the paper counts "the frequency of choice appearances rather than
  the actual number of cases" (appendix C.1), 15,691 in three tasks. `n` is that count. `n_cases` is
  the smallest possible number of questions: a question offers each label of its task at most once,
  so at least 7,614 / 18 + 40 / 4 + 8,037 / 26 (Table 5), each rounded up: 743.
- If nothing is known, both are 0, and the score has no interval.

Imports no gradio and no torch.
"""

import csv
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, cast

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.derive.metrics import METRICS
from eval_harness.records.result import Benchmark, Breakdown, Method, Model, Result, Score, Scores, Source, Verdict
from eval_harness.scores.comparisons import compute_unpaired_difference
from eval_harness.scores.intervals import CONFIDENCE_LEVEL, INTERVAL_METHOD, printed_interval, verdict_against_chance
from leaderboard_space.benchmarks import ONLY_PRINTED, board_spec

PUBLISHED_FOLDER = Path(__file__).parents[1] / "published"
RECOMPUTED = "recomputed"
"""Name of the table of counts from published answers."""
CsvRow = dict[str, str]
NumberPlace = tuple[str, str, str]
"""Position of a number in a result: facet, facet value (both empty for overall scores) and
metric."""
ResultKey = tuple[str, ...]


@dataclass(frozen=True)
class PrintedCell:
    """A printed number.

    `about`: its description, keyed by the columns of `cells.csv`. `spread`: the number after a
    plus-minus sign.
    """

    row: str
    column: str
    value: float
    spread: float | None
    about: CsvRow

    @property
    def place(self) -> NumberPlace:
        return self.about.get("facet", ""), self.about.get("facet_value", ""), self.about["metric"]


def printed_cells(table: str) -> Iterator[PrintedCell]:
    """Yield the numbers of a table of `published/`, row by row, without labels, sizes and empty
    cells.

    Args:
        table: The table's name without `.csv`.
    """
    labels = int(next(row for row in read_table("tables") if row["table"] == table)["labels"])
    abouts = [row for row in read_table("cells") if row["table"] == table]
    head, *body = _csv_rows(table)
    for line in body:
        row = " / ".join(part for part in line[:labels] if part)
        for column, printed in zip(head[labels:], line[labels:], strict=True):
            # Later lines of cells.csv refine earlier ones.
            about: CsvRow = {}
            for candidate in abouts:
                if selects_cell(candidate, row, column):
                    about |= {key: value for key, value in candidate.items() if value}
            number = re.match(r"-?\d+(?:\.\d+)?", printed)
            if "metric" not in about or number is None:
                continue
            # Some tables print a standard deviation: "mean ± deviation".
            spread = re.search(r"± (\d+(?:\.\d+)?)", printed)
            yield PrintedCell(row, column, float(number[0]), float(spread[1]) if spread else None, about)


@cache
def published_models() -> dict[str, Model]:
    """Return the models of the papers by canonical name, with kind and size."""
    kinds = Literal["open", "proprietary", "medical", "baseline"]
    return {
        row["name"]: Model(name=row["name"], kind=cast(kinds, row["kind"]), parameters=_parameters(row["parameters"]))
        for row in read_table("models")
    }


def _parameters(printed: str) -> int | None:
    """
    >>> _parameters("7.6B")
    7600000000
    """
    return round(float(printed.removesuffix("B")) * 1e9) if printed else None


@cache
def read_table(name: str) -> tuple[CsvRow, ...]:
    """Read the rows of a table of `published/`, named without `.csv`."""
    head, *body = _csv_rows(name)
    return tuple(dict(zip(head, line, strict=True)) for line in body)


@cache
def _csv_rows(name: str) -> tuple[list[str], ...]:
    with (PUBLISHED_FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return tuple(csv.reader(file))


def selects_cell(selector: CsvRow, row: str, column: str) -> bool:
    """Return True if a line of `cells.csv` or `notes.csv` applies to a cell.

    Args:
        selector: The line. An empty field matches everything; a row may be named by one of its
            labels.
        row: The cell's row labels, joined by " / ".
        column: The cell's column; the selector may contain wildcards.
    """
    is_row = selector["row"] in ("", row, *row.split(" / "))
    return is_row and (not selector["column"] or fnmatchcase(column, selector["column"]))


def cell_model(cell: PrintedCell, paper: str) -> str:
    """Return the canonical name of the model that a cell belongs to."""
    labels = (cell.row, *cell.row.split(" / "), cell.column)
    return next(_models_by_printed_label(paper)[label] for label in labels if label in _models_by_printed_label(paper))


@cache
def _models_by_printed_label(paper: str) -> dict[str, str]:
    """Return printed label -> canonical name, for one paper."""
    return {label: row["name"] for row in read_table("models") for label in row[paper].split("; ") if label}


@dataclass
class TableResult:
    """The cells of one table that make up one result."""

    table: CsvRow
    paper: CsvRow
    about: CsvRow
    cells: list[PrintedCell] = field(default_factory=list)

    @property
    def key(self) -> ResultKey:
        """Key that is equal for tables of a paper that become one result of the board."""
        names = ("benchmark", "split", "model", "method", "prompt", "variant")
        return (self.paper["citation"], *(self.about.get(name, "") for name in names))

    @property
    def is_recomputed(self) -> bool:
        return self.table["table"] == RECOMPUTED

    @property
    def table_name(self) -> str:
        return "stored answers" if self.is_recomputed else f"Table {self.table['number']}"

    @cached_property
    def scores(self) -> list[tuple[PrintedCell, Score]]:
        """Its numbers as scores."""
        return [(cell, cell_score(cell, self)) for cell in self.cells]

    @cached_property
    def notes(self) -> list[str]:
        """Notes on its table and its cells."""
        rows = [row for row in read_table("notes") if row["table"] == self.table["table"]]
        of_cells = [row for row in rows if any(selects_cell(row, cell.row, cell.column) for cell in self.cells)]
        return [note for note in (self.table["note"], *(row["note"] for row in of_cells)) if note]


@cache
def table_results() -> tuple[TableResult, ...]:
    """The results of all tables, before any are merged."""
    results: dict[tuple[str, ...], TableResult] = {}
    for table, paper, cell in _described_cells():
        of_paper = {name: paper[name] for name in ("split", "method", "prompt", "questions") if paper.get(name)}
        of_table = {name: table[name] for name in ("benchmark", "questions") if table.get(name)}
        about = of_paper | of_table | cell.about
        about["model"] = about.get("model") or cell_model(cell, paper["paper"])
        group = TableResult(table, paper, about)
        # One table may print several sample counts of a model: each is a result.
        results.setdefault((table["table"], *group.key, about.get("samples", "")), group).cells.append(cell)
    return tuple(results.values())


def _described_cells() -> Iterator[tuple[CsvRow, CsvRow, PrintedCell]]:
    """Yield every number with what describes its table and its paper.

    For `recomputed.csv`, whose rows are counts (`right` of `n`), this is the source of the answers.
    """
    papers = {row["paper"]: row for row in read_table("papers")}
    for table in read_table("tables"):
        yield from ((table, papers[table["paper"]], cell) for cell in printed_cells(table["table"]))
    for cell in recomputed_cells():
        source = sources()[cell.about["source"]]
        paper = {
            "paper": cell.about["benchmark"],
            "citation": f"{source['title']} ({source['date']}), {source['link']}",
            "date": f"{source['date']}T00:00:00+00:00",
        }
        yield {"table": RECOMPUTED, "number": "", "note": source["reason"], "ablation": ""}, paper, cell


def recomputed_cells() -> Iterator[PrintedCell]:
    """Yield the numbers of `recomputed.csv`; `about` has the row's fields that are not empty."""
    for row in read_table(RECOMPUTED):
        # Ten decimals, as in the result files of runs.
        value = round(100 * int(row["right"]) / int(row["n"]), 10)
        about = {name: content for name, content in row.items() if content}
        yield PrintedCell(row["model"], "", value, None, about)


@cache
def sources() -> dict[str, CsvRow]:
    """Return the rows of `sources.csv` by their id: sources of recomputed and reported numbers."""
    return {row["source"]: row for row in read_table("sources")}


def published_results() -> list[Result]:
    """Convert every number of the papers' tables.

    Returns:
        One Result per table (or source of answers), model, benchmark, split, method, prompt and
        variant, so that `source.table` is exact. A number printed in two tables occurs twice;
        `board_results` merges them.
    """
    return add_run_verdicts([_merge_tables([group]) for group in table_results()])


def board_results() -> list[Result]:
    """Convert the papers' numbers for the board, with a paper's tables on the same model and
    settings merged.

    Ablation tables (other prompts, many aggregated answers) are left out: a best of 100 picked by
    an oracle must not be ranked among models, and one model must not occupy eleven ranks, one for
    each prompt.

    Returns:
        One Result per model, benchmark, split, method, prompt and variant. If two tables print
        different numbers for the same score, the first table's is used and a note quotes the other.
    """
    merged: dict[ResultKey, list[TableResult]] = {}
    for group in table_results():
        if not group.table["ablation"]:
            merged.setdefault(group.key, []).append(group)
    return add_run_verdicts([_board_result(_merge_tables(tables)) for tables in merged.values()])


def _merge_tables(tables: list[TableResult]) -> Result:
    """Merge a paper's tables on the same model and settings into one result."""
    about, paper = tables[0].about, tables[0].paper
    scores: Scores = {}
    breakdown: Breakdown = {}
    notes: list[str] = []
    for group in tables:
        notes += group.notes
        for cell, score in group.scores:
            facet, value, metric = cell.place
            # Two tables may print the same score: the first stands, and a difference becomes a
            # note.
            part = breakdown.setdefault(facet, {}).setdefault(value, {}) if facet else scores
            kept_score = part.setdefault(metric, score)
            if part is scores and kept_score.value != score.value:
                notes.append(
                    f"{metric}: {kept_score.value:.2f} in the first table, {score.value:.2f} in {group.table_name}."
                )
            if cell.spread is not None:
                part.setdefault(f"{metric}_std", Score(value=cell.spread, n=score.n, n_cases=score.n_cases))
    # Ablation sets of the papers are not benchmarks of medprobe, but are in a benchmark's format.
    is_ours = about["benchmark"] in BENCHMARKS
    numbers = ", ".join(dict.fromkeys(group.table["number"] for group in tables))
    return Result(
        kind="recomputed" if tables[0].is_recomputed else "printed",
        provenance="published",
        benchmark=Benchmark(
            name=about["benchmark"],
            format=about["benchmark"] if is_ours else paper["paper"],
            split=about["split"],
            questions=int(about["questions"]),
            origin="official" if is_ours else "custom",
        ),
        model=published_models()[about["model"]],
        method=Method(
            name=about["method"],
            prompt=about.get("prompt"),
            samples=int(about["samples"]) if "samples" in about else None,
            generation={"variant": about["variant"]} if "variant" in about else {},
        ),
        scores=scores,
        breakdown=breakdown,
        created_at=paper["date"],
        source=Source(
            citation=paper["citation"],
            table=tables[0].table_name if len(tables) == 1 else f"Tables {numbers}",
            note=" ".join(dict.fromkeys(notes)) or None,
        ),
    )


def _board_result(result: Result) -> Result:
    """Add HALT-MedVQA's scenarios, printed as columns beside their average, as cells of a
    breakdown.

    The average over one scenario is the accuracy in it. Also applies `rename_error_shares`.
    """
    facet, cell_metric, metrics = board_spec(result.benchmark.family).facet_metrics or ("", "", {})
    for value, names in metrics.items():
        if names[0] in result.scores:
            scores = {name: result.scores[name] for name in names if name in result.scores}
            result.breakdown.setdefault(facet, {})[value] = {cell_metric: result.scores[names[0]], **scores}
    result.breakdown = rename_error_shares(result.breakdown)
    return result


def rename_error_shares(breakdown: Breakdown) -> Breakdown:
    """Rename `refused` within ProbMed's steps (facet `aspect`, Table 6) to `refused_of_errors`.

    There it is a share of the errors, in the paper as in result files; everywhere else `refused` is
    a share of all responses.
    """
    steps = {
        step: {"refused_of_errors" if name == "refused" else name: score for name, score in scores.items()}
        for step, scores in breakdown.get("aspect", {}).items()
    }
    return {**breakdown, "aspect": steps} if steps else breakdown


def result_key(result: Result) -> ResultKey:
    """Return the `TableResult.key` of a result of the board."""
    method, benchmark = result.method, result.benchmark
    variant, citation = str(method.generation.get("variant", "")), result.source.citation if result.source else ""
    return (citation, benchmark.name, benchmark.split, result.model.name, method.name, method.prompt or "", variant)


def printed_table(result: Result, metric: str, facet: str = "", value: str = "") -> str | None:
    """Find the table that prints a number of `board_results`.

    Args:
        result: The merged result.
        metric: The metric.
        facet: The facet of a breakdown cell; empty for an overall score.
        value: The facet value of a breakdown cell.

    Returns:
        The table's name; None if no table prints such a number.

    >>> result = next(r for r in board_results() if r.benchmark.name == "probmed")
    >>> printed_table(result, "organ", "image_type", "brain_ct")
    'Table 7'
    """
    return _tables_of_numbers().get((result_key(result), (facet, value, metric)))


@cache
def _tables_of_numbers() -> dict[tuple[ResultKey, NumberPlace], str]:
    """Return (result key, place) -> the first table that prints the number."""
    first_tables: dict[tuple[ResultKey, NumberPlace], str] = {}
    for group in table_results():
        result = _board_result(_merge_tables([group]))
        for place, _ in _scores_by_place(result):
            first_tables.setdefault((group.key, place), group.table_name)
    return first_tables


def misprint(result: Result, metric: str, facet: str = "", value: str = "") -> str | None:
    """Return the note on a known misprint of this number (or its column); None without one."""
    return _misprints().get((result_key(result), (facet, value, metric)))


@cache
def _misprints() -> dict[tuple[ResultKey, NumberPlace], str]:
    """Return (result key, place) -> note on the misprint there.

    A line of `notes.csv` is taken for a note on single numbers if it names a column and one of its
    labels contains a "/" ("Spinal / Indiv."). Lines without one, most of which concern whole rows
    or columns, and columns that start with "*" (methods of scoring) are not marked at a number.
    """
    noted = [row for row in read_table("notes") if row["column"] and "/" in row["column"] + row["row"]]
    misprints = {}
    for group in table_results():
        rows = [row for row in noted if row["table"] == group.table["table"] and not row["column"].startswith("*")]
        for cell in group.cells if rows else ():
            if note := " ".join(row["note"] for row in rows if selects_cell(row, cell.row, cell.column)):
                misprints[group.key, cell.place] = note
    return misprints


def cell_score(cell: PrintedCell, group: TableResult) -> Score:
    """Convert a printed cell to a score; without an interval if the number of cases is unknown."""
    metric = cell.about["metric"]
    n, n_cases = _cell_counts(cell, group)
    info = METRICS.get(metric) or ONLY_PRINTED[metric]
    # Counts, and scores without a known number of cases, have no interval.
    if info.unit == "count" or n_cases == 0:
        return Score(value=cell.value, n=n, n_cases=n_cases)
    sharing = board_spec(group.paper["paper"]).cases_sharing.get(cell.about.get("facet_value", ""), (1.0, 1.0))
    interval = printed_interval(cell.value, n_cases, sharing)
    # Ten decimals, as in the result files of runs.
    low, high = round(100 * interval.low, 10), round(100 * interval.high, 10)
    exact = board_spec(group.about["benchmark"]).chance.get(metric, board_spec(group.paper["paper"]).chance.get(metric))
    exact = float(cell.about["chance"]) if "chance" in cell.about else exact
    worth = round(interval.n_effective, 10)
    return Score(
        value=cell.value,
        low=low,
        high=high,
        n=n,
        n_cases=n_cases,
        n_effective=worth,
        chance=exact,
        verdict=verdict_against_chance(low, high, worth, exact, info.higher_is_better),
        interval_method=INTERVAL_METHOD,
    )


def _cell_counts(cell: PrintedCell, group: TableResult) -> tuple[int, int]:
    """Return `n` and `n_cases` of a cell.

    `pairs` in `cells.csv` stands for the number of MediConfusion's pairs with two valid answers.
    """
    if cell.about["n"] != "pairs":
        return int(cell.about["n"]), int(cell.about["n_cases"])
    by_metric = {sibling.about["metric"]: sibling for sibling in group.cells}
    set_accuracy = by_metric["set_accuracy"]
    pairs = int(set_accuracy.about["n"])
    valid = valid_pairs(pairs, set_accuracy.value, by_metric["individual_accuracy"].value, cell.value)
    return valid, valid


def valid_pairs(pairs: int, set_accuracy: float, individual_accuracy: float, confusion: float) -> int:
    """Reconstruct how many MediConfusion pairs had two valid answers: the denominator of confusion,
    which is not printed.

    The largest count v consistent with the three printed percentages (of `pairs`, of 2 x `pairs`,
    of v): with s confused and c correct pairs, c <= v - s. A confused pair has one correct answer,
    a correct pair two, and a pair with an invalid answer at most one. In most rows only one count
    fits.

    Args:
        pairs: Number of pairs in the benchmark.
        set_accuracy: Percent of the pairs answered correctly.
        individual_accuracy: Percent of the single questions answered correctly.
        confusion: Percent of the valid pairs answered alike.

    Returns:
        The count; 0 if none fits.
    """
    right = round(set_accuracy * pairs / 100)
    answers = round(individual_accuracy * 2 * pairs / 100)
    # From the largest count down, so the first that fits is returned.
    for valid in range(pairs, 0, -1):
        confused = round(confusion * valid / 100)
        certain = confused + 2 * right
        fits = abs(100 * confused / valid - confusion) <= 0.0051 and right <= valid - confused
        if fits and certain <= answers <= certain + pairs - valid:
            return valid
    return 0


def is_random_run(result: Result) -> bool:
    """Return True if a result is a paper's own run of random answers."""
    return result.kind == "printed" and result.model.kind == "baseline"


def add_run_verdicts(results: Sequence[Result]) -> list[Result]:
    """Test results against their paper's random run where exact chance is unknown
    (`with_run_verdict`).

    Returns:
        The results. Each number is tested against the first number that a random run has for the
        same question set, facet value and metric.
    """
    runs: dict[tuple[str, ...], Score] = {}
    for result in filter(is_random_run, results):
        for place, score in _scores_by_place(result):
            runs.setdefault((result.benchmark.name, result.benchmark.split, *place), score)

    def tested(result: Result) -> Result:
        benchmark = result.benchmark
        return map_scores(
            result,
            lambda score, place: with_run_verdict(
                score, runs.get((benchmark.name, benchmark.split, *place)), place[-1]
            ),
        )

    return [result if is_random_run(result) else tested(result) for result in results]


def with_run_verdict(score: Score, run: Score | None, metric: str) -> Score:
    """Test a score against a random run.

    The test treats the two as independent samples (Agresti and Caffo 2000), uncorrected, at 95 %.
    Both keep their own intervals: without overlap the two always differ significantly; with overlap
    they may.

    Args:
        score: The score.
        run: The random run's score of the same metric; None without a run.
        metric: The metric.

    Returns:
        The score with the run as its `chance` and with a verdict; unchanged if exact chance is
        known or either has no testable number.
    """
    info = METRICS.get(metric) or ONLY_PRINTED[metric]
    if run is None or run.value is None or run.low is None or run.high is None or score.chance is not None:
        return score
    if score.value is None or score.low is None or info.higher_is_better is None or score.is_small or run.is_small:
        return score
    verdict: Verdict = "no different"
    if compute_unpaired_difference(score, run)[2] < 1 - CONFIDENCE_LEVEL:
        verdict = "better" if (score.value > run.value) == info.higher_is_better else "worse"
    return score.model_copy(update={"chance": run.value, "chance_interval": (run.low, run.high), "verdict": verdict})


def _scores_by_place(result: Result) -> Iterator[tuple[NumberPlace, Score]]:
    """Yield a result's scores with their places, the overall ones first."""
    for facet, values in {"": {"": result.scores}, **result.breakdown}.items():
        for value, scores in values.items():
            yield from (((facet, value, metric), score) for metric, score in scores.items())


def map_scores(result: Result, change: Callable[[Score, NumberPlace], Score]) -> Result:
    """Return a result with every score replaced by `change` of the score and its place."""

    def changed(facet: str, value: str, scores: Scores) -> Scores:
        return {metric: change(score, (facet, value, metric)) for metric, score in scores.items()}

    breakdown = {
        facet: {value: changed(facet, value, scores) for value, scores in values.items()}
        for facet, values in result.breakdown.items()
    }
    return result.model_copy(update={"scores": changed("", "", result.scores), "breakdown": breakdown})
