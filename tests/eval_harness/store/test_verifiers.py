"""Verifiers in operation: many pull requests, several verifiers, faults in between."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_builders.errors import BadInput
from eval_harness.store import pull_requests
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import responses
from tests.eval_harness.store.verifying import REPO, STORE, main_files, status
from tests.helpers import write_lines


def test_parallel_verifiers_add_each_submission_once(owner, data, as_owner, tmp_path):
    for n in range(4):
        submit_to_store(
            write_lines(tmp_path / f"{n}.jsonl", responses(data, n)),
            STORE,
            "mediconfusion",
            f"Model {n}",
            str(data),
        )
    as_owner()
    commits_before = len(owner.list_repo_commits(**REPO))
    with ThreadPoolExecutor(3) as pool:
        outcomes_by_thread = list(pool.map(lambda _: verify(STORE, everything=True, data=[str(data)]), range(3)))
    assert all(
        outcome.status in ("added", "closed already") for outcomes in outcomes_by_thread for outcome in outcomes
    ), outcomes_by_thread
    assert len(owner.list_repo_commits(**REPO)) == commits_before + 4
    assert [status(owner, n) for n in range(1, 5)] == ["closed"] * 4


def test_the_next_verifier_finishes_an_interrupted_one(owner, run, data, as_owner, local_hub):
    submit_to_store(run, STORE)
    as_owner()
    local_hub.faults.add("/status", 500, method="POST", times=100)
    with pytest.raises(BadInput):
        verify(f"{STORE}@1", data=[str(data)])
    added = main_files(owner)
    local_hub.faults.clear()
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert main_files(owner) == added and status(owner, 1) == "closed"


def test_a_commit_with_a_lost_response_is_made_once(owner, run, data, as_owner, local_hub):
    submit_to_store(run, STORE)
    as_owner()
    commits_before = len(owner.list_repo_commits(**REPO))
    local_hub.faults.add("/commit/", 412, method="POST")
    local_hub.faults.add("/commit/", 503, method="POST", lose_response=True)
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert len(owner.list_repo_commits(**REPO)) == commits_before + 1


def test_a_crashing_submission_does_not_block_the_others(owner, run, data, as_owner, tmp_path, monkeypatch, capsys):
    submit_to_store(run, STORE)
    submit_to_store(
        write_lines(tmp_path / "b.jsonl", responses(data, 1)),
        STORE,
        "mediconfusion",
        "Model B",
        str(data),
    )
    as_owner()
    examined, examined_calls = pull_requests.examine_in_sandbox, []

    def breaks_once(*arguments):
        examined_calls.append(arguments)
        if len(examined_calls) == 1:
            raise ZeroDivisionError
        return examined(*arguments)

    monkeypatch.setattr(pull_requests, "examine_in_sandbox", breaks_once)
    words = [outcome.status for outcome in verify(STORE, everything=True, data=[str(data)])]
    assert words == ["failed", "added"] and "ZeroDivisionError" in capsys.readouterr().err
