"""`medprobe sight`: a run beside its arms, what of its scores comes from the images, as a table and in a sentence.

See also: the numbers (`scores/sight.py`), what an arm shows (`runs/images.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import HEADLINE_METRICS, nonresponse_cause
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE
from eval_harness.records.result import ARMS, Images, Result
from eval_harness.records.run import read_run
from eval_harness.scores.sight import compute_sight
from eval_harness.store.acceptance import read_acceptance
from eval_harness.store.comparison import Side, load_side
from eval_harness.store.formatting import format_image_points, interval_decimals

SIGHT_COLUMN_TYPES = {
    "metric": "str",
    **dict.fromkeys(("real", *ARMS, "from_image", "low", "high"), "float64"),
    "sees": "boolean",
    "best_arm": "str",
    **dict.fromkeys(("share_without", "share_low", "share_high"), "float64"),
    "n": "Int64",
    "note": "str",
}


@dataclass(frozen=True)
class Arms:
    """A run with the right images and those of its arms that there are, by what they showed."""

    sides: Mapping[Images, Side]

    @property
    def real(self) -> Result:
        return self.sides["real"].result


def load_arms(folders: Sequence[Path]) -> list[Arms]:
    """The runs of these folders, each with its arms: runs of the same model and request but for what they showed, in these folders or
    beside them. Of several, those that are named count first, then those that `--arms` put beside their run (RUN-blank). An arm beside
    another run is not taken: a plug-in model may have changed between two runs of one request.

    Raises BadInput for what is no run folder, and for an arm of which the run with the right images is not there.
    """
    named = {folder.resolve(): folder for folder in folders}
    known: dict[Path, ArmIdentity] = {}
    for path in sorted({path.parent for folder in named for path in folder.parent.glob(f"*/{RUN_FILE}")}):
        with suppress(BadInput):  # a damaged neighbour is left out
            if (path / RESULT_FILE).is_file():
                known[path.resolve()] = read_arm_identity(path)
    known |= {path: read_arm_identity(folder) for path, folder in named.items()}
    found: dict[Path, Arms] = {}
    for path, folder in named.items():
        real = _match_arms(path, known, named).get("real")
        if real is None:
            raise BadInput(
                f"{folder}: shows {known[path][0]} images, and the run with the right ones is not beside it. Name it too."
            )
        if real not in found:
            there = _match_arms(real, known, named)
            found[real] = Arms({image: load_side(str(named.get(each, each)), list) for image, each in there.items()})
    return list(found.values())


ArmIdentity = tuple[Images, tuple[str | None, ...]]
"""The images a run showed, and what it shares with its arms: the account (in a store), the model, its revision, and the request apart
from the images."""


def read_arm_identity(folder: Path) -> ArmIdentity:
    """The images a run showed, and what identifies its arms. Raises BadInput if its files cannot be read."""
    run, accepted = read_run(folder), read_acceptance(folder)
    account = accepted.account if accepted else None
    return run.request.image, (account, run.model.name, run.model.revision, run.request.of_arms.model_dump_json())


def _match_arms(path: Path, known: Mapping[Path, ArmIdentity], named: Mapping[Path, Path]) -> dict[Images, Path]:
    """Images shown -> folder, for a run and its arms or for an arm and the others."""

    def run_of(other: Path) -> Path:
        """The folder of the run that an arm was put beside."""
        return other.with_name(other.name.removesuffix(f"-{known[other][0]}"))

    def of_another(other: Path) -> bool:
        return run_of(other) not in (other, run_of(path)) and known.get(run_of(other)) == ("real", known[other][1])

    same = [other for other in known if known[other][1] == known[path][1] and (other in named or not of_another(other))]
    same.sort(key=lambda other: (other in named, run_of(other) == run_of(path)))
    return {known[other][0]: other for other in same}  # the last counts


def sight_table(arms: Arms) -> pd.DataFrame:
    """One row per metric of the benchmark that the run has a value of.

    `real`, `withheld`, `blank`, `swapped`: percent in each run; `from_image`: the points that need the image, with their 95 % interval
    `low` to `high`; `sees`: whether every arm is significantly below the run; `best_arm`: the arm that comes nearest; `share_without`:
    percent of the score that it keeps, with its interval `share_low` to `share_high`; `n`: units; `note`: why there is no number. What
    there is not is missing.
    """
    tables = {image: found for image, side in arms.sides.items() if (found := side.units()) is not None}
    rows = [
        _sight_row(arms, name, info, tables)
        for name, info in eval_spec(arms.real.benchmark.family).metrics.items()
        if (info.compared or info.no_arm) and name in arms.real.scores and arms.real.scores[name].value is not None
    ]
    return pd.DataFrame(rows, columns=list(SIGHT_COLUMN_TYPES)).astype(SIGHT_COLUMN_TYPES)


def _sight_row(arms: Arms, name: str, info: MetricInfo, tables: Mapping[Images, pd.DataFrame]) -> dict[str, Any]:
    values = {image: side.result.scores[name].value for image, side in arms.sides.items() if name in side.result.scores}
    row: dict[str, Any] = {"metric": name, **{image: value for image, value in values.items() if value is not None}}
    if why := missing_reason(arms, name, info):
        return row | {"note": why}
    if any(image not in tables for image in ("real", *info.compared)):
        return row | {"note": "a run lies there without its answers"}
    try:
        found = compute_sight(tables["real"], {image: tables[image] for image in info.compared}, name)
    except BadInput as error:
        return row | {"note": str(error)}
    return row | {
        "from_image": found.value,
        "low": found.low,
        "high": found.high,
        "sees": found.sees,
        "best_arm": found.best_arm,
        "share_without": found.share,
        "share_low": found.share_low,
        "share_high": found.share_high,
        "n": found.n,
        "note": info.no_arm or None,
    }


def missing_reason(arms: Arms, name: str, info: MetricInfo) -> str | None:
    """Why a metric has no part that comes from the image; None where it has one."""
    if not info.compared:
        return info.no_arm
    if missing := [image for image in info.compared if image not in arms.sides]:
        return f"not run with {' and '.join(missing)} images"
    for image in ("real", *info.compared):
        result = arms.sides[image].result
        score = result.scores.get(name)
        if score is None or score.value is None or score.nonresponse is not None:
            silent = (
                nonresponse_cause(score.nonresponse, result)
                if score is not None and score.nonresponse is not None
                else "no score"
            )
            return f"{image}: {silent}"
    return None


def format_sight(arms: Arms) -> str:
    """The table as text, and the sentence of the benchmark's main score."""
    result, table = arms.real, sight_table(arms)
    about = f"{result.model.name} on {result.benchmark.name} · {result.benchmark.split} · {result.benchmark.questions} questions"
    named = list(table["metric"])
    width = max(map(len, named), default=6)
    heads = "".join(f"{name:>10}" for name in ("real", *ARMS))
    lines = [about, f"{'metric':<{width}}{heads}  {'from the image':<25}{'left without it':<19}"]
    headline = None
    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        scores = "".join(f"{'' if row[image] is None else format(row[image], '.1f'):>10}" for image in ("real", *ARMS))
        said = f"{row['metric']:<{width}}{scores}  "
        if row["from_image"] is None:
            lines.append(f"{said}none: {row['note']}")
            continue
        digits = interval_decimals(row["low"], row["high"], 0.0)
        points = f"{row['from_image']:.{digits}f} ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
        share = "" if row["share_without"] is None else f"{row['share_without']:.0f} %"
        share += "" if row["share_low"] is None else f" ({row['share_low']:.0f} to {row['share_high']:.0f})"
        lines.append(f"{said}{points:<25}{share:<19}{'sees' if row['sees'] else 'not shown to see'}")
        if row["metric"] == HEADLINE_METRICS[result.benchmark.family]:
            headline = format_image_points(row["real"], row["from_image"], row["low"], row["high"])
    return "\n".join([*lines, *([headline] if headline else [])])
