"""Define the commands that summarize runs: aggregate, adversarial-pairs, calibration, sight."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from medprobe.commands.output import OutputFormat, print_json

app = typer.Typer()


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
    from eval_harness.store.sight_report import format_sight, load_arms

    typer.echo("\n\n".join(map(format_sight, load_arms(runs))))
