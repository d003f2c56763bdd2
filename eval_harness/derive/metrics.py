"""Labels, descriptions, directions and units of all metrics; the headline metric of a result, or why it has no score.

A benchmark's own metrics are in its module (`benchmarks/`). See also: the rule of nonresponse (`scores/nonresponse.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.schema import LETTERS
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.spec import MetricInfo
from eval_harness.records.result import MIN_INDEPENDENT_CASES, Nonresponse, Result, Score
from eval_harness.scores.nonresponse import NONRESPONSE_STATUSES

HEADLINE_METRICS: dict[str, str] = {name: eval_spec(name).headline for name in BENCHMARKS}
"""The metric that a benchmark is ranked by."""
OVERALL_METRICS: dict[str, str] = {
    name: eval_spec(name).over_all or headline for name, headline in HEADLINE_METRICS.items()
}
"""The metric over every question of a benchmark: what is right and wrong of a question is read from it."""

_EVERYWHERE = {
    "irrelevant": MetricInfo(
        "Irrelevant", "Responses in which no option could be read, of all responses asked for.", False, of_ends=True
    ),
    "refused": MetricInfo(
        "Refused", "Responses that decline to answer, of all responses asked for.", False, of_ends=True
    ),
    "abstained": MetricInfo(
        "Abstained",
        "Responses without a choice for any reason (refused, cut off, failed, missing, unreadable), of all responses asked for.",
        None,
        of_ends=True,
    ),
    "answered_accuracy": MetricInfo(
        "Accuracy where answered",
        "Questions with one correct option answered correctly, of those for which an option was chosen: an abstention is neither right nor "
        "wrong.",
    ),
}

_SHARES = {
    f"share_{letter}": MetricInfo(f"Share of {letter}", f"Answers that choose {letter}, of the answers read.", None)
    for letter in LETTERS
} | {
    "share_yes": MetricInfo("Share of yes", "Answers that say yes, of the answers read.", None),
    "share_no": MetricInfo("Share of no", "Answers that say no, of the answers read.", None),
}

METRICS: dict[str, MetricInfo] = {}
for _name in BENCHMARKS:
    for _metric, _info in eval_spec(_name).metrics.items():
        METRICS.setdefault(_metric, _info)
METRICS |= {**_EVERYWHERE, **_SHARES}
"""Every metric by name; where two benchmarks have a metric of one name, the first one's (`spec(benchmark).metrics` has each)."""
BALANCED_METRICS = {"average": "scenario", "average_irrelevant": "scenario", "accuracy_macro_task": "task"}
"""Metrics that are means over the values of a facet: of a part of the questions, every value still there weighs the same."""


@dataclass(frozen=True)
class NoScore:
    """Why a result has no headline score; `nonresponse` if most of its responses say nothing."""

    reason: str
    nonresponse: Nonresponse | None = None

    def __str__(self) -> str:
        return f"no score: {self.reason}"


def headline_score(result: Result) -> Score | NoScore:
    """The score of a result's headline metric, or why it has none. Used wherever a run is judged by its score."""
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


def untested_reason(score: Score, result: Result, case: str = "case") -> str:
    """Why a score has neither verdict nor rank; empty where it may have them. `case`: what a case is called."""
    if score.nonresponse is not None:
        return nonresponse_cause(score.nonresponse, result)
    worth = f"worth {score.n_effective:.1f}, and a test needs {MIN_INDEPENDENT_CASES}" if score.is_small else ""
    return f"too few independent {case}s ({worth})" if worth else ""


def nonresponse_cause(found: Nonresponse, result: Result) -> str:
    """Why most responses say nothing, counted by reason.

    "28 of 28 answers were cut off at 8 tokens"; "27 of 28 answers say nothing: 20 were cut off at 8 tokens, 7 failed".
    """
    limit = result.environment.get("output_limit") or result.method.generation.get("max_tokens")
    if "recorded_file" in result.environment:  # the run's settings are not those that the answers were generated with
        limit = None
    at = f"at {limit:,} token{'s' * (limit != 1)}" if isinstance(limit, int) and limit > 0 else "by the output limit"
    words = {
        "truncated": ("was", "were", f"cut off {at}"),
        "failed": ("", "", "failed"),
        "missing": ("is", "are", "missing"),
        "irrelevant": ("", "", "could not be read"),
    }
    counts = {reason: count for reason in NONRESPONSE_STATUSES if (count := getattr(found, reason))}
    silent, asked = sum(counts.values()), found.responses

    def said(reason: str, count: int, of: str = "") -> str:
        one, many, what = words[reason]
        return " ".join(part for part in (f"{count:,}", of, one if count == 1 and not of else many, what) if part)

    if len(counts) == 1:
        return said(next(iter(counts)), silent, f"of {asked:,} answers")
    return f"{silent:,} of {asked:,} answers say nothing: {', '.join(said(*each) for each in counts.items())}"


_REMEDIES = {
    "truncated": "raise --max-tokens",
    "failed": "run the same command again, which asks the failed ones again",
    "missing": "add the missing answers",
    "irrelevant": "look at some of them; a judge model can read those that hold text (--judge)",
}


def nonresponse_remedy(found: Nonresponse, result: Result) -> str:
    """A remedy for each reason that applies."""
    elsewhere = "have these answered again where the file comes from"
    recorded = {"failed": elsewhere} if "recorded_file" in result.environment else {}
    words = [words for reason, words in (_REMEDIES | recorded).items() if getattr(found, reason)]
    return "; ".join(dict.fromkeys(words))
