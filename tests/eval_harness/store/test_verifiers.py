"""Verifiers at work: many pull requests, several verifiers, faults on the way."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_builders.errors import BadInput
from eval_harness.interop.convert import convert_and_submit
from eval_harness.store import pull_requests
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import responses
from tests.eval_harness.store.verifying import REPO, STORE, main_files, status
from tests.helpers import write_lines


def test_verifying_in_parallel_adds_each_once(owner, data, as_owner, tmp_path):
    for n in range(4):
        convert_and_submit(
            write_lines(tmp_path / f"{n}.jsonl", responses(data, n)), STORE, "mediconfusion", f"Model {n}", str(data)
        )
    as_owner()
    before = len(owner.list_repo_commits(**REPO))
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(lambda _: verify(STORE, everything=True, data=[str(data)]), range(3)))
    assert all(outcome.status in ("added", "closed already") for outcomes in found for outcome in outcomes), found
    assert len(owner.list_repo_commits(**REPO)) == before + 4
    assert [status(owner, n) for n in range(1, 5)] == ["closed"] * 4


def test_a_verifier_that_dies_between_adding_and_closing_is_finished_by_the_next(owner, run, data, as_owner, local_hub):
    convert_and_submit(run, STORE)
    as_owner()
    local_hub.faults.add("/status", 500, method="POST", times=100)
    with pytest.raises(BadInput):
        verify(f"{STORE}@1", data=[str(data)])
    added = main_files(owner)
    local_hub.faults.clear()
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert main_files(owner) == added and status(owner, 1) == "closed"


def test_a_commit_whose_answer_is_lost_is_made_once(owner, run, data, as_owner, local_hub):
    convert_and_submit(run, STORE)
    as_owner()
    before = len(owner.list_repo_commits(**REPO))
    local_hub.faults.add("/commit/", 412, method="POST")
    local_hub.faults.add("/commit/", 503, method="POST", lose_response=True)
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert len(owner.list_repo_commits(**REPO)) == before + 1


def test_one_that_breaks_us_does_not_hold_up_the_others(owner, run, data, as_owner, tmp_path, monkeypatch, capsys):
    convert_and_submit(run, STORE)
    convert_and_submit(
        write_lines(tmp_path / "b.jsonl", responses(data, 1)), STORE, "mediconfusion", "Model B", str(data)
    )
    as_owner()
    examined, asked = pull_requests.examine_in_sandbox, []

    def breaks_once(*arguments):
        asked.append(arguments)
        if len(asked) == 1:
            raise ZeroDivisionError
        return examined(*arguments)

    monkeypatch.setattr(pull_requests, "examine_in_sandbox", breaks_once)
    words = [outcome.status for outcome in verify(STORE, everything=True, data=[str(data)])]
    assert words == ["failed", "added"] and "ZeroDivisionError" in capsys.readouterr().err
