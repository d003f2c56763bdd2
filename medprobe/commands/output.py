"""Print results as a table or JSON, in full or on one line, and check thresholds (exit code 1)."""

import json
import math
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dataset_builders.benchmark_names import resolve_name
from dataset_builders.errors import BadInput

if TYPE_CHECKING:
    from eval_harness.records.result import Result

OUTPUT = partial(typer.Option, rich_help_panel="Output")
"""An option in the panel "Output" of `--help`."""

OutputFormat = Annotated[Literal["table", "json"], OUTPUT("--format", help="table, or json: the whole document")]
AllMetrics = Annotated[
    bool,
    OUTPUT(
        "--all-metrics",
        help="also the metrics that every benchmark has, e.g. refusals and accuracy on answered questions",
    ),
]
Quiet = Annotated[bool, OUTPUT("--quiet", help="no progress and no table: the headline score alone")]
FailUnder = Annotated[
    list[str] | None,
    OUTPUT(
        metavar="METRIC=VALUE",
        help="end with exit code 1 if the metric is below the value, or if there is no score (repeatable)",
    ),
]


def print_json(results: "Sequence[Result]") -> None:
    """Print results as JSON.

    Args:
        results: the results; a single one is printed as its `result.json`, several as a list.
    """
    documents = [result.to_json() for result in results]
    # A single result is printed exactly as in its file.
    typer.echo(
        documents[0]
        if len(documents) == 1
        else json.dumps([json.loads(document) for document in documents], indent=1) + "\n",
        nl=False,
    )


def quiet_line(result: "Result") -> str:
    """Format the line that `--quiet` prints.

    Returns:
        "BENCHMARK: headline score", with the reason in place of the score if there is none.
    """
    from eval_harness.store.formatting import format_headline

    return f"{result.benchmark.name}: {format_headline(result)}"


def parse_score_limits(options: Sequence[str]) -> dict[str, float]:
    """Parse `METRIC=VALUE` options.

    Returns:
        Metric -> minimum, in the metric's unit.

    Raises:
        BadInput: an unknown metric, one where lower is better, or an ambiguous value.
    """
    from eval_harness.derive.metrics import METRICS

    limits = {}
    for option in options:
        name, _, value = option.partition("=")
        try:
            limit = float(value)
        except ValueError:
            limit = math.nan
        if not math.isfinite(limit):
            raise BadInput(f"--fail-under {option!r}: write METRIC=VALUE, e.g. --fail-under accuracy=50.")
        metric = resolve_name(name, METRICS, "--fail-under: the metric")
        # `higher_is_better` may be None: then neither direction is better.
        if not METRICS[metric].higher_is_better:
            raise BadInput(f"--fail-under {option}: a higher {metric} is not better, so a minimum makes no sense.")
        # To some users 1 means 1 %, to others 100 %.
        if METRICS[metric].unit == "percent" and not 1 < limit <= 100 and limit != 0:
            raise BadInput(
                f"--fail-under {option}: {metric} is in percent, so the value must be 0 or over 1, "
                "and at most 100. "
                f"Write {metric}=25 for a quarter."
            )
        limits[metric] = limit
    return limits


def check_limits(results: "Sequence[Result]", limits: Mapping[str, float]) -> None:
    """Exit with code 1 if a limit is not met, and print one line for each that is not.

    A result without a headline score meets no limit. With several results, those of benchmarks that
    lack the metric are skipped.
    """
    from eval_harness.derive.metrics import NoScore, headline_score
    from eval_harness.store.formatting import format_score

    failed = []
    for metric, limit in limits.items():
        if results and not any(metric in result.scores for result in results):
            failed.append(f"{metric}: no result has this metric; available: {', '.join(results[0].scores)}")
        for result in results:
            label = f"{metric} of {result.model.name} on {result.benchmark.name}"
            main_score = headline_score(result)
            score = result.scores.get(metric)
            if isinstance(main_score, NoScore):
                failed.append(f"{label}: {main_score}")
            elif score is not None and (score.value is None or score.value < limit):
                failed.append(
                    f"{label}: "
                    f"{'no score' if score.value is None else f'{format_score(score.value)} is under {limit:g}'}"
                )
    for line in failed:
        print(f"medprobe: --fail-under {line}", file=sys.stderr)
    if failed:
        raise typer.Exit(1)
