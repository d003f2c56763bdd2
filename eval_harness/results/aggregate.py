"""Aggregates over several run folders of one model, as results of the kind `aggregate`; calibration of a run with option scores; the
adversarial pairs of a run (ProbMed Table 3).

See also: the arithmetic (`derive/aggregates.py`, `scores/calibration.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.schema import ASPECTS
from eval_harness.derive.aggregates import (
    accuracies,
    aggregate_result,
    best_over_methods,
    majority,
    oracle,
    prompts_by_samples,
    sample_scores,
)
from eval_harness.derive.metrics import HEADLINE
from eval_harness.derive.scoring import score
from eval_harness.derive.summary import summarise
from eval_harness.records.result import Breakdown, Result, Score, Scores
from eval_harness.records.run import read_run
from eval_harness.runs.folder import read_questions
from eval_harness.runs.scoring import answered
from eval_harness.scores.calibration import Calibration, calibration
from eval_harness.scores.grading import grade
from eval_harness.scores.pairs import pair_units

KINDS = ("best", "mean", "majority", "oracle")


def aggregate(kind: str, folders: Sequence[Path], threshold: float = 50.0, out: Path | None = None) -> Result:
    """Compute one aggregate; with `out`, write it there as a result file.

    `best`: each accuracy's best over runs with different methods, overall and per category (MediConfusion Tables 1, last columns, and 2;
    per facet value of every other benchmark). `mean`: mean and standard deviation
    of the headline metric over the samples of runs with different prompts (appendix C, Table 4). `majority`: the most frequent choice among
    a run's samples (Table 10). `oracle`: right where more than `threshold` percent of a run's samples are (Table 8).
    Raises BadInput for an unknown kind, folders that are no runs, runs of different models or questions, and too few runs or samples.
    """
    if kind not in KINDS:
        raise BadInput(f"aggregate {kind}: no such aggregate. Available: {', '.join(KINDS)}.")
    if not 0 <= threshold < 100:
        raise BadInput(f"--threshold {threshold}: give a percentage from 0 to below 100.")
    read = {read_run(folder).run_id: (folder, *_scored(folder)) for folder in folders}
    if len(read) < len(folders):
        raise BadInput("aggregate: the same run was given twice.")
    results = {run_id: result for run_id, (_, result, _) in read.items()}
    empty = aggregate_result(kind, results, {})  # refuses runs that do not belong together
    cells: Breakdown = {}
    if kind == "best":
        scores, cells = best_over_methods(list(results.values()))
    elif kind == "mean":
        scores = _mean(empty.benchmark.family, read)
    else:
        scores = _of_samples(kind, empty.benchmark.family, read, threshold)
    result = aggregate_result(f"oracle {threshold:g}%" if kind == "oracle" else kind, results, scores, cells)
    if out is not None:
        replace_file(out, result.to_json().encode())
    return result


def _scored(folder: Path) -> tuple[Result, pd.DataFrame]:
    derived = answered(folder).derived()
    return derived.result, derived.readings


def _mean(family: str, read: dict[str, tuple[Path, Result, pd.DataFrame]]) -> Scores:
    """The headline metric's mean over all samples of all runs, and as `<metric>_std` their standard deviation."""
    prompts = [result.method.prompt or run_id for run_id, (_, result, _) in read.items()]
    if len(set(prompts)) < len(prompts):
        raise BadInput("aggregate mean: two runs have the same prompt. Give one run per prompt, with --samples N.")
    folder = next(iter(read.values()))[0]
    answers = {prompt: frame for prompt, (_, _, frame) in zip(prompts, read.values(), strict=True)}
    metric = HEADLINE[family]
    table = prompts_by_samples(family, read_questions(folder), answers, metric)
    whole = {name: float(table[name].to_numpy()[-1]) for name in ("mean", "std", "runs")}  # the last row is `all`
    counted = next(iter(read.values()))[1].scores[metric]
    mean, spread = (None if math.isnan(whole[name]) else whole[name] for name in ("mean", "std"))
    samples = (sample_scores(family, read_questions(folder), frame, metric) for frame in answers.values())
    silent = (score.nonresponse for scores in samples for score in scores if score is not None and score.nonresponse)
    return {
        metric: Score(
            value=mean,
            n=counted.n,
            n_cases=counted.n_cases,
            chance=counted.chance,
            nonresponse=next(silent, None) if mean is None else None,
        ),
        f"{metric}_std": Score(value=spread, n=int(whole["runs"]), n_cases=counted.n_cases),
    }


def _of_samples(kind: str, family: str, read: dict[str, tuple[Path, Result, pd.DataFrame]], threshold: float) -> Scores:
    """Scores of one run's samples taken together."""
    if len(read) != 1:
        raise BadInput(f"aggregate {kind}: takes one run folder, made with --samples N.")
    folder, _, answers = next(iter(read.values()))
    if answers["sample"].nunique() < 2:
        raise BadInput(f"{folder}: holds one sample per question. `medprobe eval --samples N` draws several.")
    questions = read_questions(folder)
    if kind == "majority":
        return score(family, questions, majority(answers)).scores
    # The oracle knows only right from not right: of what the others chose, or whether they declined, it says nothing.
    scores = score(family, questions, oracle(family, questions, answers, threshold)).scores
    return {name: scores[name] for name in accuracies(scores)}


def calibration_of(folder: Path) -> Calibration:
    """How far the confidence of a run with option scores (`gd`, `ps`) can be trusted. Raises BadInput where it has none."""
    result, answers = _scored(folder)
    found = calibration(result.benchmark.family, read_questions(folder), answers)
    if found is None:
        raise BadInput(f"{folder}: holds no option scores. Run `medprobe eval --method gd` (or ps).")
    return found


def adversarial_pairs_of(folder: Path) -> dict[str, Scores]:
    """What adversarial pairs cost a run (ProbMed section 4, Table 3): aspect -> `accuracy_without_adversarial` (the true question of a
    pair right), `accuracy_with_adversarial` (both right); `all` holds every pair, and comes first. `n` counts pairs.

    Raises BadInput for a run of another format, or one whose questions hold no pairs.
    """
    result, answers = _scored(folder)
    questions = read_questions(folder)
    if not {"pair_id", "adversarial"} <= set(questions.columns):
        raise BadInput(f"{folder}: a run on {result.benchmark.name}, whose questions do not form adversarial pairs.")
    graded = grade(result.benchmark.family, questions, answers)
    units = pair_units(result.benchmark.family, graded)
    if units.empty:
        raise BadInput(f"{folder}: its questions hold no pair of a true and an adversarial question.")
    if "aspect" not in questions.columns:
        return {"all": summarise(units)}
    aspect = graded.questions.set_index("pair_id")["aspect"].dropna().groupby(level=0).first()
    of_unit = units["unit"].map(aspect)
    parts = {name: summarise(units[(of_unit == name).to_numpy()]) for name in ASPECTS if (of_unit == name).any()}
    return {"all": summarise(units), **parts}
