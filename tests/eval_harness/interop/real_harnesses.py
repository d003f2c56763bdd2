"""Run other harnesses with a server whose answers depend on the prompt, and compare with ours."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from eval_harness.models.interface import Settings
from eval_harness.records.result import Result
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from eval_harness.store.submit import build_submission

INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "HF_HOME")
"""Environment variables that a harness inherits."""


def run_harness(command: Sequence[str | Path], folder: Path, **variables: str) -> str:
    """Run a harness in a folder and return its output, which is the message if it fails."""
    inherited = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    done = subprocess.run(
        command,
        cwd=folder,
        env=inherited | variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check_against_ours(
    harness_metrics: Mapping[str, object], written: Path, data: Path, server_url: str, out: Path
) -> Result:
    """Check a harness's metrics (in percent) against ours for the same answers.

    At least one of them is neither 0 nor 100, and the harness's output is submitted with our
    scores.
    """
    settings = Settings(base_url=server_url)
    result, _ = run_evaluation(EvalConfig(data.name, "openai:m", data=str(data), out=out, settings=settings))
    assert result is not None
    values = {
        name: value
        for name, value in harness_metrics.items()
        if isinstance(value, int | float) and name in result.scores
    }
    # All 0 or all 100 would also agree if nothing were read.
    assert len(values) >= 2 and any(0 < value < 100 for value in values.values()), harness_metrics
    for name, value in values.items():
        assert value == pytest.approx(result.scores[name].value, abs=5e-5), name
    submitted = build_submission(written, data.name, "M", str(data))
    assert submitted.problems == [] and submitted.result.scores == result.scores
    return result
