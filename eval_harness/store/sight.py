"""Measure how much of a run's scores comes from the images, and report it (`medprobe sight`).

The same questions are asked with the right image and in up to three arms, which are runs with
another image, a blank one, or none. The report is a table and a sentence.

See also: differences of two runs (`scores/comparisons.py`), which images an arm shows
(`runs/requests.py`), docs/sight.md.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, special

from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.derive.metrics import HEADLINE_METRICS, nonresponse_cause
from eval_harness.derive.run_files import RESULT_FILE, RUN_FILE
from eval_harness.records.result import ARMS, Images, Result, read_run
from eval_harness.scores.comparisons import (
    Moments,
    compare_pairwise,
    compute_moments,
    pack_outcomes,
    standard_error,
)
from eval_harness.scores.grading import UNSETTLED_COLUMN, image_clusters
from eval_harness.scores.intervals import CONFIDENCE_LEVEL, clustered_interval
from eval_harness.store.comparison import Side, load_side
from eval_harness.store.contents import read_acceptance
from eval_harness.store.formatting import format_image_points, interval_decimals

TAIL_PROBABILITY = (1 - CONFIDENCE_LEVEL) / 2
MAX_SHARE = 1e3
"""The search for the upper end of the share's interval stops at this ratio."""


@dataclass(frozen=True, slots=True)
class Arm:
    """Comparison of a run's score with that of one arm, in percent and percentage points.

    Attributes:
        score: Score without the right image.
        difference: score(real) - score(arm).
        low: Lower end of the 95 % interval of the difference.
        high: Upper end.
        p: Two-sided p-value; it is below 5 % if and only if the interval excludes 0.
    """

    score: float
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True, slots=True)
class Sight:
    """How much of a score is lost without the right image.

    Attributes:
        metric: Name of the metric.
        score: Score with the right images, percent.
        arms: Arm -> its comparison with the score.
        best_arm: The arm with the smallest difference.
        value: That smallest difference, percentage points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        share: Score of the best arm as a percentage of the score; None if the score is 0.
        share_low: Lower end of the share's interval; None if the score is not significantly above
            0.
        share_high: Upper end, likewise.
        n: Number of units.
    """

    metric: str
    score: float
    arms: Mapping[str, Arm]
    best_arm: str
    value: float
    low: float
    high: float
    share: float | None
    share_low: float | None
    share_high: float | None
    n: int

    @property
    def sees(self) -> bool:
        """True if every arm scores significantly less than the run, each tested at 5 %.

        This is the case if and only if `low` is above 0. It is an intersection-union test, which
        needs no correction for the number of arms (Berger 1982, Technometrics 24).
        """
        return self.low > 0


def compute_sight(real: pd.DataFrame, arms: Mapping[str, pd.DataFrame], metric: str, with_share: bool = True) -> Sight:
    """Compare a run with its K arms on one metric.

    `value` is the smallest of K differences. The lower end of its interval is the smallest of the
    arms' lower ends. The lower end is too high only if that of the arm with the smallest true
    difference is, so a tail of 2.5 % needs no correction. The upper end is the smallest of the
    arms' upper ends. That is too low as soon as one of them is, so each has a tail of 2.5 % / K
    (Bonferroni). `share` is the largest of K ratios, so its lower end is the corrected one.

    The interval of a ratio is Fieller's (1954, J. Royal Statistical Society B 16): it contains the
    shares s for which the paired test of score(arm) - s x score(real) does not reject 0. It
    excludes 100 % if and only if the arm differs significantly.

    Args:
        real: Scoring units of the run with the right images (`derive.metrics.compute_units`).
        arms: Arm -> scoring units of its run.
        metric: Name of the metric.
        with_share: Whether to compute the share and its interval.

    Raises:
        BadInput: The runs did not answer the same questions.
    """
    outcomes = pack_outcomes({"real": real, **arms}, metric)
    moments, pairs = compute_moments(outcomes), compare_pairwise(outcomes)
    arm_results = {
        name: Arm(
            float(pairs.value[k]),
            float(pairs.difference[0, k]),
            float(pairs.low[0, k]),
            float(pairs.high[0, k]),
            float(pairs.p[0, k]),
        )
        for k, name in enumerate(arms, 1)
    }
    best_arm = min(arm_results, key=lambda name: arm_results[name].difference)
    # Bonferroni over the arms; the docstring explains which ends need it.
    tail_per_arm = TAIL_PROBABILITY / len(arms)
    lows = [_share_end(moments, k, tail_per_arm, upper=False) for k in range(1, len(arms) + 1)] if with_share else []
    highs = (
        [_share_end(moments, k, TAIL_PROBABILITY, upper=True) for k in range(1, len(arms) + 1)] if with_share else []
    )
    score, has_interval = (
        float(pairs.value[0]),
        with_share and all(end is not None for end in highs),
    )
    return Sight(
        metric=metric,
        score=score,
        arms=arm_results,
        best_arm=best_arm,
        value=arm_results[best_arm].difference,
        low=min(arm.low for arm in arm_results.values()),
        high=min(_upper_end(moments, k, tail_per_arm) for k in range(1, len(arms) + 1)),
        share=100 * arm_results[best_arm].score / score if with_share and score > 0 else None,
        share_low=max(end or 0.0 for end in lows) if has_interval else None,
        share_high=max(end or 0.0 for end in highs) if has_interval else None,
        n=int((outcomes.denominator > 0).any(axis=0).sum()),
    )


def _error(moments: Moments, arm: int, share: float) -> float:
    """Return the standard error of score(arm) - share x score(real), as a fraction."""
    sums = [
        np.maximum(products[arm, arm] - 2 * share * products[0, arm] + share * share * products[0, 0], 0.0)
        for products in moments.products
    ]
    return float(standard_error(sums, moments.unit_variance[0, arm], moments.sizes))


def _quantile(moments: Moments, arm: int, tail: float) -> float:
    """Return Student's quantile for this upper tail; infinite with no degrees of freedom."""
    df = float(moments.df[0, arm])
    return float(special.stdtrit(df, 1 - tail)) if df > 1e-9 else np.inf


def _upper_end(moments: Moments, arm: int, tail: float) -> float:
    """Return the upper end of score(real) - score(arm), in percentage points."""
    difference = float(moments.share[0] - moments.share[arm])
    return 100 * min(difference + _quantile(moments, arm, tail) * _error(moments, arm, 1.0), 1.0)


def _share_end(moments: Moments, arm: int, tail: float, upper: bool) -> float | None:
    """Return an end of the interval of score(arm) / score(real) in percent, at least 0.

    None if the ratio is unbounded or the end lies above MAX_SHARE.
    """
    quantile, (real, without_image) = (
        _quantile(moments, arm, tail),
        (float(moments.share[model]) for model in (0, arm)),
    )
    # A ratio to a score of 0 has no interval.
    if real <= 0 or not np.isfinite(quantile):
        return None

    def excess(share: float) -> float:
        return abs(without_image - share * real) - quantile * _error(moments, arm, share)

    point_estimate = without_image / real
    if not upper:
        return 100 * optimize.brentq(excess, 0.0, point_estimate) if point_estimate > 0 and excess(0.0) > 0 else 0.0
    step = 0.1
    # The interval contains the point estimate: search outwards for a sign change.
    while excess(point_estimate + step) <= 0:
        step *= 2
        if step > MAX_SHARE:
            return None
    return 100 * optimize.brentq(excess, point_estimate, point_estimate + step)


MIRAGE_ARMS: tuple[Images, ...] = ("withheld", "blank")
"""Arms without any image, in which an answer can only come from the text."""
SIGHT_COLUMN_TYPES = {
    "metric": "str",
    **dict.fromkeys(("real", *ARMS, "from_image", "low", "high"), "float64"),
    "sees": "boolean",
    "best_arm": "str",
    **dict.fromkeys(("share_without", "share_low", "share_high"), "float64"),
    "n": "Int64",
    "note": "str",
}
"""Columns of `sight_table`, with their types."""


@dataclass(frozen=True)
class Arms:
    """A run with the right images and its available arms, by the images that they showed."""

    sides: Mapping[Images, Side]

    @property
    def real(self) -> Result:
        """The result of the run with the right images."""
        return self.sides["real"].result


def load_arms(folders: Sequence[Path]) -> list[Arms]:
    """Load runs with their arms.

    An arm is a run of the same model with the same request except for the images, in one of these
    folders or next to one. If there are several with the same images, a folder in `folders` takes
    precedence, then one that `--arms` created for the run (RUN-blank). An arm created for another
    run is not used: a plug-in model may have changed between two runs of the same request.

    Args:
        folders: Folders of runs or of their arms.

    Returns:
        One entry per run with the right images.

    Raises:
        BadInput: If a path is not a run folder, or an arm's run with the right images is missing.
    """
    named_folders = {folder.resolve(): folder for folder in folders}
    identities: dict[Path, ArmIdentity] = {}
    for path in sorted({path.parent for folder in named_folders for path in folder.parent.glob(f"*/{RUN_FILE}")}):
        with suppress(BadInput):  # damaged folders are ignored, unless they were named
            if (path / RESULT_FILE).is_file():
                identities[path.resolve()] = read_arm_identity(path)

    identities |= {path: read_arm_identity(folder) for path, folder in named_folders.items()}
    arms_by_run: dict[Path, Arms] = {}

    for path, folder in named_folders.items():
        real = _match_arms(path, identities, named_folders).get("real")
        if real is None:
            raise BadInput(
                f"{folder}: shows {identities[path][0]} images, and the run with the right images "
                "is not next to it. Name it too."
            )
        if real not in arms_by_run:
            arm_folders = _match_arms(real, identities, named_folders)
            arms_by_run[real] = Arms(
                {
                    image: load_side(str(named_folders.get(arm_folder, arm_folder)), list)
                    for image, arm_folder in arm_folders.items()
                }
            )

    return list(arms_by_run.values())


ArmIdentity = tuple[Images, tuple[str | None, ...]]
"""The images that a run showed, and the properties that it has in common with its arms.

These are the account (in a store), the model, its revision, and the request except for the images.
"""


def read_arm_identity(folder: Path) -> ArmIdentity:
    """Return the images that a run showed, and the properties it has in common with its arms.

    Raises:
        BadInput: If its files cannot be read.
    """
    run, accepted = read_run(folder), read_acceptance(folder)
    account = accepted.account if accepted else None
    return run.request.image, (
        account,
        run.model.name,
        run.model.revision,
        run.request.of_arms.model_dump_json(),
    )


def _match_arms(
    path: Path, identities: Mapping[Path, ArmIdentity], named_folders: Mapping[Path, Path]
) -> dict[Images, Path]:
    """Return the folders of a run and its arms, by the images shown; `path` is any one of them."""

    def run_of(candidate: Path) -> Path:
        """Return the folder of the run for which `--arms` created an arm."""
        return candidate.with_name(candidate.name.removesuffix(f"-{identities[candidate][0]}"))

    def of_another(candidate: Path) -> bool:
        """Return True if the arm was created for another run with the same properties."""
        return run_of(candidate) not in (candidate, run_of(path)) and identities.get(run_of(candidate)) == (
            "real",
            identities[candidate][1],
        )

    matches = [
        candidate
        for candidate in identities
        if identities[candidate][1] == identities[path][1] and (candidate in named_folders or not of_another(candidate))
    ]
    # The dictionary keeps the last folder of each kind, so the preferred ones come last.
    matches.sort(key=lambda candidate: (candidate in named_folders, run_of(candidate) == run_of(path)))
    return {identities[candidate][0]: candidate for candidate in matches}


def sight_table(arms: Arms) -> pd.DataFrame:
    """Compute how much of each metric comes from the image; one row per metric with a value.

    Args:
        arms: The run and its arms.

    Returns:
        A table with SIGHT_COLUMN_TYPES. `real`, `withheld`, `blank`, `swapped`: the score of each
            run in percent. `from_image`: the points that need the image, with their 95 % interval
            `low` to `high`. `sees`: whether every arm is significantly below the run. `best_arm`:
            the arm that comes closest to the run. `share_without`: percent of the run's score that
            this arm reaches, with its interval `share_low` to `share_high`. `n`: number of units.
            `note`: why there is no number. Unavailable values are missing.
    """
    tables = {image: side.units() for image, side in arms.sides.items() if side.has_answers}
    rows = [
        _sight_row(arms, name, info, tables)
        for name, info in eval_spec(arms.real.benchmark.family).metrics.items()
        if (info.compared or info.no_arm) and name in arms.real.scores and arms.real.scores[name].value is not None
    ]
    return pd.DataFrame(rows, columns=list(SIGHT_COLUMN_TYPES)).astype(SIGHT_COLUMN_TYPES)


def _sight_row(arms: Arms, name: str, info: MetricInfo, tables: Mapping[Images, pd.DataFrame]) -> dict[str, Any]:
    """Return the row of one metric."""
    values = {image: side.result.scores[name].value for image, side in arms.sides.items() if name in side.result.scores}
    row: dict[str, Any] = {
        "metric": name,
        **{image: value for image, value in values.items() if value is not None},
    }
    if reason := missing_reason(arms, name, info):
        return row | {"note": reason}
    # A comparison needs the answers of the run and of every compared arm.
    if any(image not in tables for image in ("real", *info.compared)):
        return row | {"note": "a run has no answers"}

    try:
        estimate = compute_sight(tables["real"], {image: tables[image] for image in info.compared}, name)
    except BadInput as error:
        return row | {"note": str(error)}

    return row | {
        "from_image": estimate.value,
        "low": estimate.low,
        "high": estimate.high,
        "sees": estimate.sees,
        "best_arm": estimate.best_arm,
        "share_without": estimate.share,
        "share_low": estimate.share_low,
        "share_high": estimate.share_high,
        "n": estimate.n,
        "note": info.no_arm or None,
    }


@dataclass(frozen=True)
class ImageShare:
    """A share of questions, in percent, with its 95 % interval.

    Attributes:
        name: What these questions have in common.
        value: Their share.
        low: Lower end of its interval.
        high: Upper end.
        n: Number of questions that it is a share of.
    """

    name: str
    value: float
    low: float
    high: float
    n: int


def answered_shares(arms: Arms) -> list[ImageShare]:
    """Compute how often questions are answered although their image is withheld or blank.

    A response that declines, says that it cannot see, or cannot be read is no answer; lost ones do
    not count.
    """
    images = [image for image in MIRAGE_ARMS if image in arms.sides and arms.sides[image].has_answers]
    return [share for image in images for share in answered_share(image, arms.sides[image].units())]


def answered_share(image: str, units: pd.DataFrame) -> list[ImageShare]:
    """Compute how often the questions of one arm are answered; empty if no response arrived.

    Args:
        image: The arm, for the name of the share.
        units: Its scoring units (`derive.metrics.compute_units`).
    """
    rows = units[units["metric"] == "abstained"]
    delivered = 1 - rows[UNSETTLED_COLUMN].to_numpy(float)
    name = f"answered although the image is {image}"
    return _share(name, 1 - rows["numerator"].to_numpy(float), delivered, rows["cluster"])


def consistency_quarters(arms: Arms) -> list[ImageShare]:
    """Divide the questions of a run with permuted options in four, by two properties.

    Consistent: the same option is chosen in every order of the options. Needs the image: with a
    withheld or blank image, the choice is another one in at least half of the orders.

    Returns:
        Four shares; empty without permuted options, or without an arm.
    """
    sides = [arms.sides[image] for image in ("real", *MIRAGE_ARMS) if image in arms.sides]
    is_permuted = arms.real.method.generation.get("permute")
    if not is_permuted or len(sides) < 2 or not all(side.has_answers for side in sides):
        return []
    questions = sides[0].questions
    n_options = dict(zip(questions["question_id"], questions["options"].map(len), strict=True))
    tables = []
    for side in sides:
        in_order = side.answers["sample"] < side.answers["question_id"].map(n_options)  # each order once
        table = side.answers[in_order].set_index(["question_id", "sample"])["choice"]
        tables.append(table.map(lambda choice: int(choice[0]) if len(choice) == 1 else None))
    real, *without_image = (table.unstack("sample").loc[questions["question_id"]] for table in tables)
    n_orders = questions["question_id"].map(n_options).to_numpy()
    consistent = (real.notna().sum(axis=1).to_numpy() == n_orders) & (real.nunique(axis=1).to_numpy() == 1)
    n_kept = [(arm.to_numpy() == real.to_numpy()).sum(axis=1) for arm in without_image]
    needs_image = np.max(n_kept, axis=0) <= n_orders / 2
    shares = []
    for is_consistent, is_needed in product((True, False), repeat=2):
        name = f"{'consistent' if is_consistent else 'inconsistent'}, {'needs' if is_needed else 'does not need'} the image"
        members = (consistent == is_consistent) & (needs_image == is_needed)
        shares += _share(name, members, np.ones(len(members)), image_clusters(questions))
    return shares


def _share(name: str, numerator: Any, denominator: Any, cluster: Any) -> list[ImageShare]:
    """Return a share as a list; empty if it is of no question."""
    interval = clustered_interval(numerator, denominator, cluster)
    if interval is None:
        return []
    value = 100 * float(np.sum(numerator) / np.sum(denominator))
    return [ImageShare(name, value, 100 * interval.low, 100 * interval.high, int((denominator > 0).sum()))]


def missing_reason(arms: Arms, name: str, info: MetricInfo) -> str | None:
    """Return why the part of a metric that comes from the image is unknown, or None if it is known.

    Args:
        arms: The run and its arms.
        name: Name of the metric.
        info: The metric's definition, with the arms that it is compared with.
    """
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
    """Format the table, followed by a sentence about the benchmark's headline metric."""
    result, table = arms.real, sight_table(arms)
    about = f"{result.model.name} on {result.benchmark.name} · {result.benchmark.split} · {result.benchmark.questions} questions"
    metric_names = list(table["metric"])
    width = max(map(len, metric_names), default=6)
    column_heads = "".join(f"{name:>10}" for name in ("real", *ARMS))
    lines = [
        about,
        f"{'metric':<{width}}{column_heads}  {'from the image':<25}{'left without it':<19}",
    ]
    headline = None

    for row in table.astype(object).where(table.notna(), None).to_dict("records"):
        scores = "".join(f"{'' if row[image] is None else format(row[image], '.1f'):>10}" for image in ("real", *ARMS))
        prefix = f"{row['metric']:<{width}}{scores}  "
        if row["from_image"] is None:
            lines.append(f"{prefix}none: {row['note']}")
            continue
        digits = interval_decimals(row["low"], row["high"], 0.0)
        points = f"{row['from_image']:.{digits}f} ({row['low']:.{digits}f} to {row['high']:.{digits}f})"
        share = "" if row["share_without"] is None else f"{row['share_without']:.0f} %"
        share += "" if row["share_low"] is None else f" ({row['share_low']:.0f} to {row['share_high']:.0f})"
        lines.append(f"{prefix}{points:<25}{share:<19}{'sees' if row['sees'] else 'not shown to see'}")
        if row["metric"] == HEADLINE_METRICS[result.benchmark.family]:
            headline = format_image_points(row["real"], row["from_image"], row["low"], row["high"])

    shares = [
        f"{share.name}: {share.value:.1f} % ({share.low:.1f} to {share.high:.1f}, n {share.n:,})"
        for share in (*answered_shares(arms), *consistency_quarters(arms))
    ]
    return "\n".join([*lines, *([headline] if headline else []), *shares])
