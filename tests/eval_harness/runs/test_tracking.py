"""`--track`: counts and scores reach the tracker, it never decides anything, and the real trackio
takes them in its local form.
"""

import json
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dataset_builders.errors import BadInput
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import run_evaluation
from tests.environments import environment


@pytest.fixture
def data(phantoms):
    return phantoms / "mediconfusion"


@pytest.fixture
def tracker(monkeypatch):
    """A library with the calls that trackio and wandb share; `calls` is what it was told."""
    calls = []
    library = SimpleNamespace(
        __name__="trackio",
        calls=calls,
        init=lambda **arguments: calls.append(("init", arguments)),
        log=lambda numbers: calls.append(("log", numbers)),
        finish=lambda: calls.append(("finish", {})),
    )
    monkeypatch.setitem(sys.modules, "trackio", library)
    return library


def run(data, out, track="trackio:p"):
    return run_evaluation(EvalConfig("mediconfusion", "baseline:always-A", data=str(data), out=out, track=track))[0]


def test_counts_and_scores_are_sent_and_nothing_else_changes(data, tracker, tmp_path, monkeypatch):
    monkeypatch.setattr("eval_harness.runs.tracking.LOG_INTERVAL_S", 0.0)
    run_result = run(data, tmp_path / "tracked")
    (first_call, config), *logs, (last_call, _) = tracker.calls
    assert (first_call, last_call) == ("init", "finish") and {name for name, _ in logs} == {"log"}
    assert config["project"] == "p" and config["config"]["benchmark"] == "mediconfusion"
    counts = [numbers["answers"] for _, numbers in logs if "answers" in numbers]
    assert counts == [*range(1, 29), 28]
    scores = next(numbers for _, numbers in logs if "set_accuracy/value" in numbers)
    assert scores["confusion/value"] == run_result.scores["confusion"].value == 100
    plain = run(data, tmp_path / "plain", track=None)
    drop = {"created_at", "run_id"}
    assert plain.model_dump(exclude=drop) == run_result.model_dump(exclude=drop)
    assert (tmp_path / "plain/run.json").read_text().count("trackio") == 0


def test_a_tracker_that_breaks_loses_no_answer(data, tracker, tmp_path, capsys):
    def broken(numbers):
        raise OSError("disk full")

    tracker.log = broken
    assert run(data, tmp_path / "run").scores["confusion"].value == 100
    assert capsys.readouterr().err.count("the run continues without it") == 1
    tracker.init = lambda **arguments: broken(arguments)
    with pytest.raises(BadInput, match="cannot start"):
        run(data, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("track", "words"),
    [
        ("trackio", "trackio:PROJECT"),
        ("mlflow:p", "trackio:PROJECT"),
        ("trackio:p", r"medprobe\[tracking\]"),
        ("wandb:p", "pip install wandb"),
    ],
)
def test_a_tracker_that_there_is_not_is_one_line(data, tmp_path, monkeypatch, track, words):
    for name in ("trackio", "wandb"):  # not installed
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match=words):
        run(data, tmp_path / "run", track)
    assert not (tmp_path / "run").exists()


@pytest.mark.harness
@pytest.mark.timeout(900)
def test_the_real_trackio_keeps_the_scores(request, data, tmp_path):
    python = environment(request.config.cache, "trackio", ("trackio==0.43.0",))
    trackio_folder = str(tmp_path / "kept")
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "TRACKIO_DIR": trackio_folder, "HF_HUB_OFFLINE": "1"}
    command = [
        "eval",
        "mediconfusion",
        "--model",
        "baseline:always-A",
        "--out",
        "run",
        "--track",
        "trackio:p",
        "--data",
    ]
    done = subprocess.run(
        [python, "-m", "medprobe", *command, data],
        cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [database] = (tmp_path / "kept").glob("*.db")
    rows = [json.loads(row) for (row,) in sqlite3.connect(database).execute("select metrics from metrics")]
    assert {"confusion/value": 100.0}.items() <= {key: value for row in rows for key, value in row.items()}.items()
