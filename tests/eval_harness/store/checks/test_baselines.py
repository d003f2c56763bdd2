"""What says that it is a guessing baseline or the oracle is reproduced; what is not, and what is something else, is refused."""

import json
import shlex
import subprocess
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_harness.derive.answer_table import answers_bytes, frame_of
from eval_harness.records.run import RunRecord
from eval_harness.records.run_checks import wrong_run
from eval_harness.runs.config import EvalConfig
from eval_harness.runs.runner import evaluate
from eval_harness.store.datasets import named_dataset
from eval_harness.store.examine import examined
from eval_harness.store.submit import prepare
from tests.eval_harness.store.submitting import phantom

BASELINES = ("chance", "always-A", "always-C", "oracle")


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    return {family: phantom(family, folder / family) for family in ("mediconfusion", "gmai-mmbench", "probmed")}


@pytest.fixture(scope="module")
def made(sets, tmp_path_factory):
    """(family, baseline, samples, permute) -> an honest run of it, packed."""
    kept = {}

    def make(family, name, samples=1, permute=False):
        key = (family, name, samples, permute)
        if key not in kept:
            folder = tmp_path_factory.mktemp("run") / "run"
            config = EvalConfig(
                family, f"baseline:{name}", str(sets[family]), out=folder, permute=permute, name="Random guessing",
                samples=samples if samples > 1 else None,
            )  # fmt: skip
            evaluate(config)
            kept[key] = prepare(folder, data=str(sets[family]))
        return kept[key]

    return make


@settings(max_examples=4, deadline=None)
@given(
    st.sampled_from(["mediconfusion", "gmai-mmbench", "probmed"]), st.sampled_from(BASELINES), st.integers(1, 3), st.booleans(),
)  # fmt: skip
def test_ours_are_reproduced_whatever_their_samples_and_order(made, family, name, samples, permute):
    if permute and family == "probmed":
        permute = False
    assert made(family, name, 1 if permute else samples, permute).problems == []


def forged(submission, data, change_run=lambda said: None, change_rows=lambda rows: None):
    said = json.loads(submission.sent.run)
    change_run(said)
    rows = frame_of(submission.sent.answers)
    change_rows(rows)
    run = RunRecord.model_validate(said).to_json().encode()
    sent = submission.sent._replace(run=run, answers=answers_bytes(rows))
    return examined(sent, partial(named_dataset, data=str(data))).problems


@settings(max_examples=4, deadline=None)
@given(st.sampled_from(BASELINES), st.integers(0, 27), st.sampled_from(["A", "B", "", "neither"]))
def test_a_changed_answer_is_no_baseline(made, sets, name, at, text):
    submission = made("mediconfusion", name)

    def change(rows):
        rows.at[at, "response"] = text if rows.at[at, "response"] != text else text + "!"

    assert any("are not those of" in line for line in forged(submission, sets["mediconfusion"], change_rows=change))


PIECES = (
    "eval x --name 'a b'", "; touch done", "$(touch done)", "`touch done`", "&& touch done", "| touch done", "> done", "\ntouch done",
    "'", '"', "\\", "#", "${IFS}touch${IFS}done", "& touch done &", "'; touch done'", "(touch done)", "<(touch done)",
)  # fmt: skip


@settings(max_examples=40)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=4), st.sampled_from(["", " "]), st.booleans())
def test_a_command_that_is_shown_runs_nothing_else_when_it_is_copied(
    said_by, tmp_path_factory, pieces, between, quoted
):
    """What is accepted is run by a shell in which `medprobe` does nothing; what `eval` writes, quoted arguments, is accepted."""
    words = ["medprobe", *pieces]
    command = shlex.join(words) if quoted else between.join(["medprobe ", *pieces])
    document = json.loads(said_by) | {"command": command}
    accepted = not any("command" in line for line in wrong_run(RunRecord.model_validate(document)))
    assert accepted or not quoted
    if accepted and "\0" not in command:
        folder = tmp_path_factory.mktemp("shell")
        script = f"medprobe() {{ :; }}\n{command}\n".encode("utf-8", "replace")
        subprocess.run(
            ["bash", "-c", script], cwd=folder, check=False, capture_output=True, env={"PATH": "/usr/bin:/bin"}
        )
        assert not list(folder.iterdir()), command


@pytest.fixture(scope="module")
def said_by(made):
    """The run.json of an honest run."""
    return made("mediconfusion", "chance").sent.run
