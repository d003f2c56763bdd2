"""Rules that answer by text alone get the scores of the harness, for every format."""

import json

import pytest

from curation.report.quality import blind_metrics, measure_quality
from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.build import build
from dataset_builders.hub.repository import open_repository
from dataset_builders.phantom_sources import write_sources
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation


@pytest.mark.parametrize("family", BENCHMARKS)
def test_a_blind_rule_has_the_score_of_the_harness(family, phantoms, tmp_path):
    folder = phantoms / family
    report = measure_quality(folder)
    run = run_evaluation(
        EvalConfig(family, "baseline:always-A", str(folder), split=report.split, out=tmp_path / "run")
    )[0]
    for metric in blind_metrics(family):
        assert report.rules["always the first option"][metric] == run.scores[metric].model_dump()
    assert report.questions == len(open_repository(folder).questions(report.split))


def test_a_text_that_gives_the_answer_away_is_reported(tmp_path):
    """The wording depends on the answer, so the questions about other images give it away."""
    write_sources("probmed", tmp_path / "source")
    rows = json.loads((tmp_path / "source" / "probmed.json").read_text())
    for row in rows:
        row["question"] = f"Is {'this' if row['answer'] == 'yes' else 'that'} shown?"
    (tmp_path / "source" / "probmed.json").write_text(json.dumps(rows))
    folder = build("probmed", source=tmp_path / "source", out=tmp_path / "data").folder
    report = measure_quality(folder)
    rule = "what is most often right for this text elsewhere in the set"
    assert next(iter(report.rules[rule].values()))["value"] == 100
    assert any(line.startswith(f"{rule} gets 100.0") for line in report.warnings())
    assert any("asked more than once" in line for line in report.warnings())
