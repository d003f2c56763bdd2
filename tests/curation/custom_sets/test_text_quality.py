"""What the text alone gives away, for every format: by the benchmark's own metric, and the same as the harness computes."""

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
def test_a_rule_scores_as_the_harness_scores_it(family, phantoms, tmp_path):
    folder = phantoms / family
    found = measure_quality(folder)
    run = run_evaluation(EvalConfig(family, "baseline:always-A", str(folder), split=found.split, out=tmp_path / "run"))[
        0
    ]
    for metric in blind_metrics(family):
        assert found.rules["always the first option"][metric] == run.scores[metric].model_dump()
    assert found.questions == len(open_repository(folder).questions(found.split))


def test_a_text_that_gives_the_answer_away_is_told(tmp_path):
    """Findings asked about with "yes" only where they are there: having read the other images' questions is enough to know the answer."""
    write_sources("probmed", tmp_path / "source")
    rows = json.loads((tmp_path / "source" / "probmed.json").read_text())
    for row in rows:
        row["question"] = f"Is {'this' if row['answer'] == 'yes' else 'that'} shown?"
    (tmp_path / "source" / "probmed.json").write_text(json.dumps(rows))
    folder = build("probmed", source=tmp_path / "source", out=tmp_path / "data").folder
    found = measure_quality(folder)
    rule = "what is most often right for this text elsewhere in the set"
    assert next(iter(found.rules[rule].values()))["value"] == 100
    assert any(line.startswith(f"{rule} gets 100.0") for line in found.warnings())
    assert any("asked more than once" in line for line in found.warnings())
