"""An unreliable Hub: no submission is lost or refused because of it."""

import contextlib
import itertools
import time
import uuid

from dataset_builders.errors import Unavailable
from dataset_builders.hub.publish import publish
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import responses
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR
from tests.localhub.faults import Fault

STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


def test_each_request_is_retried_on_its_own(owner, run, data, local_hub, monkeypatch):
    """A Hub that fails about every sixth request must not fail a whole submission."""
    for path in (
        "whoami",
        "/api/datasets/ORG/results$",
        "paths-info",
        "discussions",
        "preupload",
        "/commit/",
    ):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    assert submit_to_store(run, STORE).new
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    for path in ("revision", "paths-info", "/discussions/1$", "/comment", "/status", "/commit/"):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert len(owner.list_repo_commits(**REPO)) == 2


def test_no_failing_request_refuses_a_submission(owner, data, local_hub, monkeypatch, tmp_path):
    """From the k-th request on, the Hub returns only errors, for every k: verification is
    postponed.
    """
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    name = f"ORG/asked-{uuid.uuid4().hex}"
    publish(data, name)
    for model in ("Model", "Another"):  # the second copy has an equal one to be compared with
        answers = write_lines(tmp_path / f"{model}.jsonl", responses(data))
        submit_to_store(answers, STORE, "mediconfusion", model, name)
        if model == "Model":
            verify(STORE, everything=True)
    count, words = 0, set()

    def fails(method, path):
        nonlocal count
        count += 1
        return Fault(path, 520) if count > passing else None

    with monkeypatch.context() as failing:
        failing.setattr(local_hub.faults, "next", fails)
        for passing in itertools.count(step=11):
            count = 0
            with contextlib.suppress(Unavailable):
                words |= {outcome.status for outcome in verify(STORE, everything=True)}
            if count <= passing:
                break
    assert words == {"later", "for a person"}
    details = owner.get_discussion_details(STORE, 2, repo_type="dataset")
    assert details.status == "open" and not any(
        "Refused" in str(getattr(event, "content", "")) for event in details.events
    )
