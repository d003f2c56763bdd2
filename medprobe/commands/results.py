"""Define the commands that show results and names.

They are results, compare, list, board, demo, and those that summarize runs: aggregate,
adversarial-pairs, calibration, sight.
"""

import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dataset_builders.benchmark_names import resolve_name
from medprobe.commands.output import AllMetrics, OutputFormat, print_json

if TYPE_CHECKING:
    import pandas as pd

app = typer.Typer()


@app.command(short_help="What did my models score?", rich_help_panel="Results")
def results(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RUN|STORE]...",
            help="run folders, folders of them, and stores: a folder, or ORG/NAME on the Hub (default: runs)",
        ),
    ] = None,
    benchmark: Annotated[list[str] | None, typer.Option(help="only this benchmark (repeatable)")] = None,
    model: Annotated[list[str] | None, typer.Option(help="only this model (repeatable)")] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="this metric instead of each benchmark's headline metric (repeatable)"),
    ] = None,
    facet: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FACET=VALUE",
            help="only numbers with this label, e.g. modality=CT (repeatable: OR within a facet, AND across facets)",
        ),
    ] = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="with the numbers of the papers, and those recomputed from published answers"),
    ] = False,
    form: Annotated[
        Literal["table", "md", "latex", "csv", "json"],
        typer.Option(
            "--format",
            help="table, md, latex: models x benchmarks; csv, json: a row per metric and label",
        ),
    ] = "table",
) -> None:
    """Print the scores of models.

    The formats table, md and latex give a table of models x benchmarks with 95 % intervals, best
    model first; csv and json give every number.
    """
    from dataset_builders.errors import BadInput
    from eval_harness.store.results_table import escape_formulas
    from leaderboard_space.data.tree import filter_by_facets
    from medprobe.score_table import FORMATTERS
    from medprobe.stores import load_results

    # The default is runs/. Without such a folder, --published alone shows the papers' numbers.
    if not sources and (Path("runs").is_dir() or not published):
        if not Path("runs").is_dir():
            raise BadInput("results: no folder runs/ here. Name run folders or a store, or pass --published.")
        sources = ["runs"]
    # Unreadable files are reported on standard error, so that csv and json stay clean.
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always", UserWarning)
        table = load_results(*(sources or ()), published=published)
    for warning in caught_warnings:
        typer.echo(f"medprobe: {warning.message}", err=True)
    for column, names in {"benchmark": benchmark, "model": model, "metric": metric}.items():
        if names:
            table = _rows_with_names(table, column, names)
    table = filter_by_facets(table, facet or ())
    # csv and json contain every number, a table only one metric per benchmark unless it is named.
    if form == "csv":
        typer.echo(escape_formulas(table).to_csv(index=False), nl=False)
    elif form == "json":
        typer.echo(table.to_json(orient="records", indent=1))
    else:
        selected = table if metric else table[table["headline"]]
        selected = selected if facet else selected[selected["facet"].isna()]
        typer.echo(FORMATTERS[form](selected) if len(selected) else "no results")


def _rows_with_names(table: "pd.DataFrame", column: str, requested: list[str]) -> "pd.DataFrame":
    """Return the rows with one of the requested names, in the order of the request.

    Raises BadInput for a name that no row has.
    """
    available = list(dict.fromkeys(table[column]))
    names = [resolve_name(name, available, f"--{column}") for name in requested]
    matching = table[table[column].isin(names)]
    return matching.iloc[matching[column].map(names.index).argsort(kind="stable")]


@app.command(short_help="Show what differs between two results, and what it is worth.", rich_help_panel="Results")
def compare(
    a: Annotated[
        str,
        typer.Argument(help="run folder, result.json, file of answers, or 'published:MODEL/BENCHMARK/METHOD/Table 1'"),
    ],
    b: Annotated[str, typer.Argument(help="another one, or a printed number such as 48.90")],
    more_results: Annotated[
        list[str] | None, typer.Argument(metavar="[MORE]...", help="more of them, if one is of a person")
    ] = None,
    benchmark: Annotated[
        str | None, typer.Option(help="benchmark that files of answers answer (default: the other side's)")
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="dataset that files of answers answer (default: the other side's)")
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="split that files of answers answer (default: the other side's)")
    ] = None,
    all_metrics: AllMetrics = False,
    form: OutputFormat = "table",
) -> None:
    """Show why two scores differ: what each difference is worth in points; scores (with a test),
    answers and settings.

    If one of the results is of a person (--model human:NAME), show first how the models differ from
    each reader on the questions that both answered; with more than two results, only this. json
    contains the causes and the scores, or a row per reader and model.
    """
    import pandas as pd

    from dataset_builders.errors import BadInput
    from eval_harness.records.limits import single_line
    from eval_harness.store.cause_report import cause_document, explain_difference, format_causes, unexplained_settings
    from eval_harness.store.comparison import compare_results, score_differences
    from eval_harness.store.reader_study import study_readers
    from leaderboard_space.benchmarks import board_spec
    from medprobe.stores import load_comparison_side, load_comparison_sides

    side, other_side = load_comparison_sides(a, b, benchmark, data, split)
    groups = (
        []
        if isinstance(other_side, str)
        else study_readers([side, other_side, *map(load_comparison_side, more_results or ())])
    )
    if more_results and not groups:
        raise BadInput("compare: none of these results is of a person (--model human:NAME). Name two results.")
    if form == "table":
        for group in groups:
            typer.echo("\n".join(map(single_line, group.sentences(board_spec(group.family).case))) + "\n")
    elif more_results:
        contrasts = pd.DataFrame([contrast for group in groups for contrast in group.contrasts])
        typer.echo(contrasts.to_json(orient="records", indent=1))
    if more_results:
        return
    settings = [] if isinstance(other_side, str) else unexplained_settings(side.result, other_side.result)
    try:
        explained = explain_difference(side, other_side)
        lines, document = format_causes(explained, settings), cause_document(explained, settings)
    except BadInput as error:  # no answers, or no question in common
        lines, document = [f"why: {error}"], {"not_determinable": str(error)}
    if form == "json":
        if not isinstance(other_side, str):
            document["scores"] = json.loads(score_differences(side, other_side).to_json(orient="records"))
        typer.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        typer.echo(
            "\n".join(lines) if isinstance(other_side, str) else compare_results(side, other_side, all_metrics, lines)
        )


METHOD_DESCRIPTIONS = {
    "mc": "multiple choice: the answer is read from the text that the model writes",
    "gd": "the option whose letter is the most likely first token of the answer (needs log-probabilities)",
    "ps": "the option whose whole text is the most likely answer (needs log-probabilities)",
    "ps_official": "ps as computed by the code of MediConfusion's authors: every token at the first position",
    "ff": "free form: the options are not shown; MediConfusion's judge model decides which one the answer means",
}


def _benchmarks() -> list[dict[str, str]]:
    """Return one row per benchmark."""
    from dataset_builders.benchmarks import BENCHMARKS, spec
    from eval_harness.derive.metrics import HEADLINE_METRICS

    return [
        {
            "benchmark": name,
            "title": spec(name).card.title,
            "split": spec(name).default_split,
            "headline metric": HEADLINE_METRICS[name],
            "facets": ", ".join(spec(name).facets),
        }
        for name in BENCHMARKS
    ]


def _prompts() -> list[dict[str, str]]:
    """Return one row per prompt; `default` lists the methods or question types it is used for."""
    from dataset_builders.benchmarks import FORMATS
    from eval_harness.benchmarks import eval_spec

    return [
        {
            "benchmark": family,
            "prompt": prompt.name,
            "methods": ", ".join(prompt.methods),
            "default": ", ".join(
                kind for kind, default in eval_spec(family).default_prompts.items() if default == prompt.name
            ),
            "source": prompt.source,
        }
        for family in FORMATS
        for prompt in eval_spec(family).prompts
    ]


def _known_sets() -> list[dict[str, str]]:
    """Return one row per set that `medprobe build vqa --preset` knows."""
    from dataset_builders.benchmarks.vqa.presets import PRESETS

    return [
        {
            "preset": name,
            "set": known_set.title,
            "source": known_set.source or "a folder of its files",
            "licence": known_set.licence,
        }
        for name, known_set in PRESETS.items()
    ]


@app.command("list", short_help="List benchmarks, sets, prompts or methods.", rich_help_panel="Run")
def list_names(
    kind: Annotated[
        Literal["benchmarks", "sets", "prompts", "methods"],
        typer.Argument(help="benchmarks, sets, prompts, methods"),
    ] = "benchmarks",
    form: OutputFormat = "table",
) -> None:
    """List the names that the commands accept.

    They are benchmarks, known sets (for `build vqa --preset`), prompts, and methods.
    """
    methods = [{"method": name, "what is read": words} for name, words in METHOD_DESCRIPTIONS.items()]
    tables: dict[str, Callable[[], list[dict[str, str]]]] = {
        "benchmarks": _benchmarks,
        "sets": _known_sets,
        "prompts": _prompts,
        "methods": lambda: methods,
    }
    rows = tables[kind]()
    if form == "json":
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    columns: list[str] = list(rows[0])
    # A column is as wide as its longest cell.
    widths = {name: max(len(name), *(len(str(row[name])) for row in rows)) for name in columns}
    for row in [{name: name for name in columns}, *rows]:
        typer.echo("  ".join(str(row[name]).ljust(widths[name]) for name in columns).rstrip())


@app.command(short_help="Serve the board.", rich_help_panel="Results")
def board(
    store: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="STORE",
            help="results store: a folder that contains results/, or ORG/NAME on the Hub",
        ),
    ] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="dataset (folder or Hub repository) for which answers can be submitted (repeatable)"),
    ] = None,
    hidden: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="QUESTIONS ANSWERS LEDGER",
            help="score a test set with hidden answers, see docs/results_store.md",
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    host_name: Annotated[
        list[str] | None,
        typer.Option(
            "--host-name",
            help="additional host name at which the board is reached, e.g. of a tunnel (repeatable)",
        ),
    ] = None,
) -> None:
    """Serve the board on this machine."""
    from dataset_builders.hub.repository import open_repository
    from eval_harness.store.hidden_test import HiddenTest
    from leaderboard_space.app import serve

    # A wrong folder fails here. The board opens Hub repositories itself, and retries if it cannot.
    for dataset in data or []:
        if Path(dataset).exists() or "/" not in dataset:
            open_repository(dataset)
    serve(
        store,
        port=port,
        data=data or [],
        hidden=HiddenTest(*hidden) if hidden else None,
        names=host_name or (),
    )


@app.command(short_help="Build a demo board from scratch.", rich_help_panel="Results")
def demo(
    folder: Annotated[Path, typer.Option("--out", help="folder to write everything to")] = Path("demo"),
    port: Annotated[int, typer.Option(help="port on 127.0.0.1")] = 7860,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="stop before serving the board")] = False,
) -> None:
    """Build a board with results from scratch, offline: phantoms, datasets, evaluations."""
    from dataset_builders.errors import require
    from medprobe.commands.demo_board import make_demo

    require("torch", "transformers", *(() if no_serve else ("gradio",)))
    store = make_demo(folder, lambda line: typer.echo(line, err=True))
    typer.echo(f"results are in {store}; `medprobe board --results {store}` shows them")
    if not no_serve:
        from leaderboard_space.app import serve

        serve(store, port=port, data=[str(path) for path in sorted((folder / "data").iterdir())])


@app.command(short_help="Summarize several runs in one result.", rich_help_panel="Results")
def aggregate(
    kind: Annotated[str, typer.Argument(help="best, mean, majority, oracle")],
    runs: Annotated[list[Path], typer.Argument(help="run folders of one model on the same questions")],
    threshold: Annotated[float, typer.Option(help="oracle: percent of the samples that must be correct")] = 50.0,
    out: Annotated[Path | None, typer.Option(help="write the result file here")] = None,
    form: OutputFormat = "table",
) -> None:
    """Summarize runs of one model in one result.

    The summary is the best over methods, the mean over prompts and samples, or the majority vote
    or an oracle over samples.
    """
    from eval_harness.store.aggregate import aggregate as sum_up
    from eval_harness.store.formatting import format_summary

    result = sum_up(kind, runs, threshold, out)
    if form == "json":
        print_json([result])
    else:
        typer.echo(format_summary(result, all_metrics=True))
    if out is not None and form != "json":
        typer.echo(f"wrote {out}")


@app.command(
    "adversarial-pairs",
    short_help="How accuracy drops with adversarial pairs (ProbMed).",
    rich_help_panel="Results",
)
def adversarial_pairs(
    run: Annotated[Path, typer.Argument(help="run folder on ProbMed, or on a dataset in its format")],
    form: OutputFormat = "table",
) -> None:
    """Print how accuracy drops with adversarial questions, in percent (ProbMed Table 3).

    The accuracies are those on the true questions alone, and on pairs of a true and an adversarial
    question.
    """
    from eval_harness.store.aggregate import adversarial_pair_scores
    from eval_harness.store.formatting import format_pairs

    scores_by_set = adversarial_pair_scores(run)
    if form == "json":
        document = {
            name: {metric: score.model_dump() for metric, score in scores.items()}
            for name, scores in scores_by_set.items()
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        typer.echo(format_pairs(scores_by_set))


@app.command(short_help="Print the calibration of a run.", rich_help_panel="Results")
def calibration(
    run: Annotated[Path, typer.Argument(help="run folder of a method that scores options (gd, ps)")],
    form: OutputFormat = "table",
) -> None:
    """Print calibration (confidence against accuracy) and the risk-coverage curve, in percent.

    json contains every point of the curve, the table only some.
    """
    from eval_harness.store.aggregate import run_calibration

    curve = run_calibration(run)
    if form == "json":
        tables = {
            name: json.loads(getattr(curve, name).to_json(orient="records")) for name in ("bins", "risk_coverage")
        }
        typer.echo(json.dumps({"ece": curve.ece, "n": curve.n, "aurc": curve.aurc, **tables}, indent=1))
        return
    typer.echo(f"expected calibration error {curve.ece:.2f} points over {curve.n} answers")
    typer.echo(curve.bins.round(2).to_string(index=False))
    typer.echo(f"mean risk over all coverages {curve.aurc:.2f} %")
    # The table shows one point of the risk-coverage curve per tenth of coverage.
    tenths = curve.risk_coverage["coverage"].map(lambda coverage: math.ceil(coverage / 10))
    typer.echo(curve.risk_coverage.groupby(tenths).tail(1).round(2).to_string(index=False))


@app.command(short_help="Show how much of a score comes from the images.", rich_help_panel="Results")
def sight(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="run folders; their arms are found next to them"),
    ],
) -> None:
    """Compare runs with their arms, in which the same model did not see the right images.

    `medprobe eval --arms` runs them.
    """
    from eval_harness.store.sight import format_sight, load_arms

    typer.echo("\n\n".join(map(format_sight, load_arms(runs))))
