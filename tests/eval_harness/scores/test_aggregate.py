"""Test aggregates of run folders, as `medprobe aggregate` makes them."""

import json

import pytest

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.records.result import read_result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.aggregate import adversarial_pair_scores, aggregate, run_calibration
from eval_harness.store.formatting import format_pairs


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aggregate")
    build("mediconfusion", out=folder / "data")
    return folder


def run(workdir, name, model="baseline:chance", **options):
    run_evaluation(
        EvalConfig(
            benchmark="mediconfusion",
            model=model,
            data=str(workdir / "data"),
            out=workdir / name,
            **options,
        )
    )
    return workdir / name


def test_mean_over_prompts_and_samples_equals_mean_over_all_samples(workdir):
    runs = [run(workdir, name, prompt=name, samples=4) for name in ("mc-0", "mc-1")]
    mean_result = aggregate("mean", runs, out=workdir / "mean.json")
    singles = [read_result(folder / "result.json").scores["set_accuracy"].value for folder in runs]
    assert mean_result.scores["set_accuracy"].value == pytest.approx(sum(singles) / 2)
    assert mean_result.scores["set_accuracy_std"].value > 0
    assert mean_result.kind == "aggregate"
    assert len(mean_result.run_ids) == 2
    assert json.loads((workdir / "mean.json").read_text())["method"]["name"] == "mean"


def test_adversarial_pairs_of_a_run(tmp_path):
    build("probmed", out=tmp_path / "data")
    run_evaluation(
        EvalConfig(
            benchmark="probmed",
            model="baseline:always-A",
            data=str(tmp_path / "data"),
            out=tmp_path / "yes",
        )
    )
    pair_scores = adversarial_pair_scores(tmp_path / "yes")
    assert list(pair_scores) == ["all", "modality", "organ", "condition", "position"]
    for scores in pair_scores.values():  # answering yes to everything gets every true question right, and no pair
        assert scores["accuracy_without_adversarial"].value == 100 and scores["accuracy_with_adversarial"].value == 0
    assert pair_scores["all"]["accuracy_with_adversarial"].n == sum(
        pair_scores[name]["accuracy_with_adversarial"].n for name in pair_scores if name != "all"
    )
    assert "-100.0" in format_pairs(pair_scores)


def test_majority_and_oracle_take_one_run_with_samples(workdir):
    many = run(workdir, "many", samples=5)
    assert 0 <= aggregate("majority", [many]).scores["individual_accuracy"].value <= 100
    lax, strict = (aggregate("oracle", [many], threshold=t).scores["individual_accuracy"].value for t in (0, 80))
    assert lax >= strict
    assert set(aggregate("oracle", [many]).scores) == {"set_accuracy", "individual_accuracy"}, (
        "it knows right from wrong"
    )
    with pytest.raises(BadInput, match="one sample per question"):
        aggregate("majority", [run(workdir, "single")])
    with pytest.raises(BadInput, match="takes one run folder"):
        aggregate("oracle", [many, workdir / "single"])


def test_incompatible_runs_are_refused(workdir):
    with pytest.raises(BadInput, match="runs of one model"):
        aggregate("best", [run(workdir, "a"), run(workdir, "b", model="baseline:always-A")])
    with pytest.raises(BadInput, match="different questions"):
        aggregate("best", [workdir / "a", run(workdir, "c", limit=4)])
    with pytest.raises(BadInput, match="same prompt"):
        aggregate("mean", [workdir / "a", run(workdir, "d", samples=2)])
    with pytest.raises(BadInput, match="given twice"):
        aggregate("best", [workdir / "a", workdir / "a"])
    with pytest.raises(BadInput, match="unknown aggregate"):
        aggregate("worst", [workdir / "a"])
    with pytest.raises(BadInput, match="no option scores"):
        run_calibration(workdir / "a")
