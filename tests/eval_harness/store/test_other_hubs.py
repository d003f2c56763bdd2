"""A Hub may say less, or say it otherwise, than the one we know: what is not promised must not be leaned on."""

import contextlib
import hashlib
import itertools
import time
import uuid

import pytest

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.publish import publish
from eval_harness.store.submit import submit
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import responses
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.faults import Fault
from tests.localhub.routes import discussions as routes_discussions
from tests.localhub.storage.history import Entry
from tests.localhub.wire import Refused
from tests.sampling import few

STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


def tells_all_discussions(monkeypatch):
    monkeypatch.setattr(routes_discussions, "_type_fits", lambda discussion, wanted: True)
    monkeypatch.setattr(routes_discussions, "_status_fits", lambda discussion, wanted: True)


def forgets_the_comment_of_a_status(monkeypatch):
    set_status = routes_discussions._set_status
    monkeypatch.setattr(
        routes_discussions, "_set_status", lambda where, author, status, text: set_status(where, author, status, None)
    )


def takes_another_digest(monkeypatch):
    described = Entry.described

    def otherwise(entry, path):
        row = described(entry, path)
        row.pop("lfs", None)
        return row | {"oid": hashlib.sha1(entry.sha256.encode()).hexdigest()}

    monkeypatch.setattr(Entry, "described", otherwise)


def names_no_error(monkeypatch):
    answer = Refused.answer

    def silent(refused):
        if refused.code == "EntryNotFound":
            refused.code = None
        return answer(refused)

    monkeypatch.setattr(Refused, "answer", silent)


@pytest.mark.parametrize(
    "kind", few([forgets_the_comment_of_a_status, tells_all_discussions, takes_another_digest, names_no_error], 2)
)
def test_submissions_land_once_on_a_hub_of_another_kind(owner, run, data, monkeypatch, tmp_path, kind):
    kind(monkeypatch)
    owner.create_discussion(title="A question", token=READER, **REPO)
    first = submit(run, STORE)
    assert first.new and first.location.endswith("/discussions/2")
    owner.change_discussion_status(discussion_num=2, new_status="closed", token=READER, **REPO)
    second = submit(run, STORE)  # what was withdrawn is no open pull request
    assert second.new and second.location.endswith("/discussions/3")
    again = submit(run, STORE)
    assert (again.new, again.location) == (False, second.location)
    other = write_lines(tmp_path / "b.jsonl", responses(data, 1))
    submit(other, STORE, "mediconfusion", "Model B", str(data))
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    assert verify(f"{STORE}@3", data=[str(data)])[0].word == "added"
    assert [outcome.word for outcome in verify(STORE, everything=True, data=[str(data)])] == ["added"]
    assert verify(STORE, everything=True, data=[str(data)]) == []
    assert len([path for path in owner.list_repo_files(**REPO) if path.endswith("/run.json")]) == 2
    for number in (3, 4):
        details = owner.get_discussion_details(STORE, number, repo_type="dataset")
        said = [event.content for event in details.events if event.type == "comment"]
        assert details.status == "closed" and ["Verified" in text for text in said].count(True) == 1, said
    monkeypatch.setenv("HF_TOKEN", READER)
    assert "tree/main" in submit(run, STORE).location


def test_each_request_is_tried_again_by_itself(owner, run, data, local_hub, monkeypatch):
    """A Hub that refuses every sixth request or so must not fail a submission for one of many."""
    for path in ("whoami", "/api/datasets/ORG/results$", "paths-info", "discussions", "preupload", "/commit/"):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    assert submit(run, STORE).new
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    for path in ("revision", "paths-info", "/discussions/1$", "/comment", "/status", "/commit/"):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    assert verify(f"{STORE}@1", data=[str(data)])[0].word == "added"
    assert len(owner.list_repo_commits(**REPO)) == 2


def test_a_dataset_is_asked_for_again_too(owner, data, local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    name = f"ORG/asked-{uuid.uuid4().hex}"  # nothing that an earlier run left in the cache may answer where the Hub does not
    publish(data, name)
    local_hub.faults.add(f"/api/datasets/{name}", 503, method="GET", headers={"Retry-After": "0"})
    local_hub.record.clear()
    answers = write_lines(tmp_path / "a.jsonl", responses(data))
    assert submit(answers, STORE, "mediconfusion", "Model", name).new
    asked = local_hub.record.of("GET", f"/api/datasets/{name}")
    assert 503 in [each.status for each in asked], asked


def test_whichever_request_fails_no_submission_is_refused(owner, data, local_hub, monkeypatch, tmp_path):
    """From the k-th request on the Hub answers nothing but errors, for every k: the submission is left for later, until all is well."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    name = f"ORG/asked-{uuid.uuid4().hex}"
    publish(data, name)
    for model in ("Model", "Another"):  # the second has an equal to be compared with
        answers = write_lines(tmp_path / f"{model}.jsonl", responses(data))
        submit(answers, STORE, "mediconfusion", model, name)
        if model == "Model":
            verify(STORE, everything=True)
    count, words = 0, set()

    def fails(method, path):
        nonlocal count
        count += 1
        return Fault(path, 520) if count > passing else None

    with monkeypatch.context() as failing:
        failing.setattr(local_hub.faults, "next", fails)
        for passing in itertools.count(step=3):
            count = 0
            with contextlib.suppress(Unavailable):
                words |= {outcome.word for outcome in verify(STORE, everything=True)}
            if count <= passing:
                break
    assert words == {"later", "for a person"}
    details = owner.get_discussion_details(STORE, 2, repo_type="dataset")
    assert details.status == "open" and not any(
        "Refused" in str(getattr(each, "content", "")) for each in details.events
    )


@pytest.mark.parametrize("asked, waited", [("7", True), ("", False), ("Fri, 31 Dec 1999 23:59:59 GMT", False)])
def test_the_hub_says_how_long_to_wait(owner, run, local_hub, monkeypatch, asked, waited):
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    local_hub.faults.add("/commit/", 503, method="POST", headers={"Retry-After": asked})
    assert submit(run, STORE).new
    assert (max(slept) >= 7) == waited


def test_a_hub_that_wants_to_be_left_alone_is_not_waited_for(owner, run, local_hub):
    local_hub.faults.add("/commit/", 429, method="POST", headers={"Retry-After": "86400"}, times=2)
    with pytest.raises(BadInput, match="too many requests"):
        submit(run, STORE)
