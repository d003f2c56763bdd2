"""Labels, descriptions, directions and units of all metrics, and a result's headline score.

A benchmark's own metrics are in its module (`benchmarks/`). See also: the rule for missing answers
(`scores/grading.py`).
"""

from dataclasses import dataclass

from dataset_builders.benchmarks import FORMATS
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.records.result import MIN_INDEPENDENT_CASES, Nonresponse, Result, Score
from eval_harness.scores.grading import NONRESPONSE_STATUSES

HEADLINE_METRICS: dict[str, str] = {name: eval_spec(name).headline for name in FORMATS}
"""Benchmark -> the metric that it is ranked by."""
OVERALL_METRICS: dict[str, str] = {
    name: eval_spec(name).over_all or headline for name, headline in HEADLINE_METRICS.items()
}
"""Benchmark -> the metric over all its questions.

It is used to tell for each question whether it was answered correctly.
"""

_EVERYWHERE = {
    "irrelevant": MetricInfo(
        "Irrelevant",
        "Share of all responses in which no option could be read.",
        False,
        of_ends=True,
    ),
    "refused": MetricInfo("Refused", "Share of all responses that decline to answer.", False, of_ends=True),
    "abstained": MetricInfo(
        "Abstained",
        "Share of all responses without a choice for any reason (refused, cut off, failed, missing, unreadable).",
        None,
        of_ends=True,
    ),
    "answered_accuracy": MetricInfo(
        "Accuracy where answered",
        "Questions with one correct option answered correctly, among those for which an option was "
        "chosen: an abstention is neither "
        "right nor wrong.",
    ),
}

_SHARES = {
    f"share_{letter}": MetricInfo(f"Share of {letter}", f"Share of the readable answers that choose {letter}.", None)
    for letter in LETTERS
} | {
    "share_yes": MetricInfo("Share of yes", "Share of the readable answers that say yes.", None),
    "share_no": MetricInfo("Share of no", "Share of the readable answers that say no.", None),
}

METRICS: dict[str, MetricInfo] = {}
for _name in FORMATS:
    for _metric, _info in eval_spec(_name).metrics.items():
        # The first benchmark's description of a shared name stays.
        METRICS.setdefault(_metric, _info)
# Metrics of all benchmarks come last: no benchmark may redefine them.
METRICS |= {**_EVERYWHERE, **_SHARES}
"""Every metric by name.

If two benchmarks have a metric of the same name, it is the first one's
(`eval_spec(benchmark).metrics` has each).
"""
BALANCED_METRICS = {
    "average": "scenario",
    "average_irrelevant": "scenario",
    "accuracy_macro_task": "task",
}
"""Metric -> facet over whose values it is a mean.

In a subset, all values that are still present have the same weight.
"""


@dataclass(frozen=True)
class NoScore:
    """Why a result has no headline score; `nonresponse` is set if that is the reason."""

    reason: str
    nonresponse: Nonresponse | None = None

    def __str__(self) -> str:
        return f"no score: {self.reason}"


def headline_score(result: Result) -> Score | NoScore:
    """Return the score of a result's headline metric, or why it has none.

    Used wherever a run is ranked or compared by a single score.
    """
    metric = HEADLINE_METRICS[result.benchmark.family]
    score = result.scores.get(metric)
    if score is not None and score.value is not None:
        return score
    if score is not None and score.nonresponse is not None:
        return NoScore(
            f"{nonresponse_cause(score.nonresponse, result)}; {nonresponse_remedy(score.nonresponse, result)}",
            score.nonresponse,
        )
    return NoScore(f"no question counts towards {metric}, or the answer key is hidden")


def untested_reason(score: Score, result: Result, case_noun: str = "case") -> str:
    """Return why a score has neither verdict nor rank; empty if it may have them.

    Args:
        score: The score.
        result: The result that it belongs to.
        case_noun: What a case is called.
    """
    if score.nonresponse is not None:
        return nonresponse_cause(score.nonresponse, result)
    worth = f"worth {score.n_effective:.1f}, and a test needs {MIN_INDEPENDENT_CASES}" if score.is_small else ""
    return f"too few independent {case_noun}s ({worth})" if worth else ""


def nonresponse_cause(nonresponse: Nonresponse, result: Result) -> str:
    """Describe why most responses contain no answer, with the number of responses for each reason.

    For example "28 of 28 answers were cut off at 8 tokens", or "27 of 28 answers say nothing: 20
    were cut off at 8 tokens, 7 failed".

    Args:
        nonresponse: Numbers of responses by reason.
        result: The result, which states the output limit.
    """
    # The server's limit, if it reported one, overrides the requested one.
    limit = result.environment.get("output_limit") or result.method.generation.get("max_tokens")
    # The answers were generated elsewhere, with settings that are not known.
    if "recorded_file" in result.environment:
        limit = None
    cutoff = (
        f"at {limit:,} token{'s' * (limit != 1)}" if isinstance(limit, int) and limit > 0 else "by the output limit"
    )
    # One answer of several, or several of them.
    phrases = {
        "truncated": (f"was cut off {cutoff}", f"were cut off {cutoff}"),
        "failed": ("failed", "failed"),
        "missing": ("is missing", "are missing"),
        "irrelevant": ("could not be read", "could not be read"),
    }
    counts = {reason: count for reason in NONRESPONSE_STATUSES if (count := getattr(nonresponse, reason))}
    of_all = f"{sum(counts.values()):,} of {nonresponse.responses:,} answers"
    if len(counts) == 1:
        return f"{of_all} {phrases[next(iter(counts))][1]}"
    parts = [f"{count:,} {phrases[reason][count > 1]}" for reason, count in counts.items()]
    return f"{of_all} say nothing: {', '.join(parts)}"


_REMEDIES = {
    "truncated": "raise --max-tokens",
    "failed": "run the same command again to repeat the failed ones",
    "missing": "add the missing answers",
    "irrelevant": "look at some of them; a judge model can read those that contain text (--judge)",
}


def nonresponse_remedy(nonresponse: Nonresponse, result: Result) -> str:
    """Return a remedy for each reason that applies, separated by semicolons.

    Args:
        nonresponse: Numbers of responses by reason.
        result: The result; answers from a recorded file cannot be asked again.
    """
    # Behind a recorded file there is no model that could be asked again.
    elsewhere = "ask them again where the file was made"
    recorded = {"failed": elsewhere} if "recorded_file" in result.environment else {}
    remedies = [remedies for reason, remedies in (_REMEDIES | recorded).items() if getattr(nonresponse, reason)]
    return "; ".join(dict.fromkeys(remedies))
