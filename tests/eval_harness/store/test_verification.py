"""Submitting to and verifying a results store on a loopback Hub, with the real client: also with
many pull requests, several verifiers, and a Hub that fails.
"""

import contextlib
import itertools
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.publish import publish
from eval_harness.answer_files.untrusted import printable_lines
from eval_harness.records.result import read_result
from eval_harness.store import pull_requests
from eval_harness.store.contents import MAX_RECORD_BYTES, Acceptance, parse_record, utc_now
from eval_harness.store.pull_requests import VerifyResult
from eval_harness.store.submit import submit_to_store
from eval_harness.store.verification import accept, refuse, verify
from tests import commands
from tests.eval_harness.store.submitting import (
    REPO,
    STORE,
    comments,
    load_questions,
    main_files,
    propose,
    pull_head,
    response_text,
    responses,
    status,
    submission_files,
)
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER, STRANGER
from tests.localhub.server import RESET, Fault


def test_a_submission_is_one_pull_request_that_only_adds(owner, run):
    main_before = main_files(owner)
    done = submit_to_store(run, STORE)
    assert done.new and done.location.endswith("/datasets/ORG/results/discussions/1")
    assert main_files(owner) == main_before
    added = set(owner.list_repo_files(**REPO, revision="refs/pr/1")) - set(owner.list_repo_files(**REPO))
    assert added == {f"{done.submission.folder}/{name}" for name in ("answers.parquet", "run.json")}
    # Submitting the same run again finds the open pull request.
    again = submit_to_store(run, STORE)
    assert (again.new, again.location) == (False, done.location)
    assert len(list(owner.get_repo_discussions(STORE, repo_type="dataset"))) == 1


def test_missing_store_or_token_is_a_one_line_error(owner, run, monkeypatch):
    with pytest.raises(BadInput, match="ORG/absent"):
        submit_to_store(run, "ORG/absent")
    monkeypatch.delenv("HF_TOKEN")
    # The machine that runs the tests may have a token of its own.
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(BadInput, match="no Hub token"):
        submit_to_store(run, STORE)


def test_a_clean_pull_request_is_added_byte_for_byte_and_closed(owner, run, data, as_owner, local_hub):
    done = submit_to_store(run, STORE)
    # Main moves on after the pull request was opened, which must not look like a deletion by it.
    owner.upload_file(path_or_fileobj=b"later", path_in_repo="notes/later.txt", **REPO)
    files, main_before = done.submission.files(), main_files(owner)
    as_owner()
    local_hub.record.clear()
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "added", outcome
    main_after = main_files(owner)
    derived = done.submission.derived_files()
    acceptance = f"{done.submission.folder}/acceptance.json"
    assert set(main_after) - set(main_before) == {*files, *derived, acceptance} and all(
        main_after[path] == oid for path, oid in main_before.items()
    )
    for path, content in (files | derived).items():
        assert Path(owner.hf_hub_download(**REPO, filename=path)).read_bytes() == content
    # Only the submission is downloaded, not the rest of the store.
    requested_paths = {request.path for request in local_hub.record.requests("GET", "/resolve/")}
    assert requested_paths and not any("notes" in path for path in requested_paths)
    assert status(owner, 1) == "closed" and "Verified" in comments(owner, 1)[-1]
    # Verifying again must change nothing.
    commits = len(owner.list_repo_commits(**REPO))
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "closed already"
    assert verify(STORE, everything=True, data=[str(data)]) == []
    assert len(owner.list_repo_commits(**REPO)) == commits
    assert "tree/main" in submit_to_store(run, STORE).location


def test_a_later_push_is_ignored(owner, run, data, as_owner, monkeypatch):
    done = submit_to_store(run, STORE)
    as_owner()
    # The contributor pushes other bytes while the first ones are examined.
    examined = pull_requests.examine_in_sandbox

    def push_meanwhile(*arguments, **options):
        path = f"{done.submission.folder}/answers.parquet"
        api = HfApi(endpoint=owner.endpoint, token=READER)
        api.upload_file(path_or_fileobj=b"evil", path_in_repo=path, revision="refs/pr/1", **REPO)
        return examined(*arguments, **options)

    monkeypatch.setattr(pull_requests, "examine_in_sandbox", push_meanwhile)
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    path = f"{done.submission.folder}/answers.parquet"
    assert Path(owner.hf_hub_download(**REPO, filename=path)).read_bytes() == done.submission.files()[path]


RUN_JSON_LIES = {
    "its questions are not those": lambda r: r["benchmark"].update(asked="0" * 64),
    "origin": lambda r: r["benchmark"].update(origin="official"),
    "belong in": lambda r: r["model"].update(name="Another model"),
    "does not name a dataset revision": lambda r: (
        r["benchmark"].update(name="../../x"),
        r["request"].update(benchmark="../../x"),
    ),
    "must be between 1 and 10,000": lambda r: (
        r["method"].update(samples=10**9),
        r["request"].update(samples=10**9),
    ),
    "method.judge must name": lambda r: r["method"].update(judge={"model": "GPT-4o"}),
}


def test_false_statements_are_refused_once_with_a_reason(owner, run, data, as_owner):
    numbers = [propose(owner, submission_files(run, change)) for change in RUN_JSON_LIES.values()]
    main_before = main_files(owner)
    as_owner()
    # The second pass must not repeat the comment.
    for _ in range(2):
        outcomes = verify(STORE, everything=True, data=[str(data)])
        for words, outcome in zip(RUN_JSON_LIES, outcomes, strict=True):
            assert outcome.status == "refused" and words in " ".join(outcome.reasons), outcome
    assert main_files(owner) == main_before
    for number in numbers:
        assert status(owner, number) == "open"
        assert len([text for text in comments(owner, number) if "Refused" in text]) == 1


def test_a_pull_request_that_does_more_than_add_a_result_is_refused(owner, run, data, as_owner):
    files = submission_files(run)
    folder = next(iter(files)).rsplit("/", 1)[0]
    owner.upload_file(path_or_fileobj=b"kept", path_in_repo="notes/README.txt", **REPO)
    propose(owner, files, delete=["notes/README.txt"])
    propose(owner, {**files, "notes/README.txt": b"changed"})
    propose(owner, {**files, f"{folder}/run.py": b"import os"})
    propose(owner, {f"{folder}/run.json": files[f"{folder}/run.json"]})
    propose(owner, {**files, "results/mediconfusion/Other/run/run.json": b"{}"})
    propose(owner, {"README.md": b"hello"})
    # Derived files and records of acceptance come from the verifier only.
    for name in ("result.json", "units.parquet", "acceptance.json"):
        propose(owner, {**files, f"{folder}/{name}": b"{}"})
    main_before = main_files(owner)
    as_owner()
    outcomes = verify(STORE, everything=True, data=[str(data)])
    assert [outcome.status for outcome in outcomes] == ["refused"] * 9
    words = (
        "deletes",
        "changes",
        "run.py",
        "lacks",
        "2 results",
        "README.md",
        "result.json",
        "units.parquet",
        "acceptance.json",
    )
    assert all(word in " ".join(outcome.reasons) for word, outcome in zip(words, outcomes, strict=True)), outcomes
    assert main_files(owner) == main_before


def test_flagged_pull_requests_wait_for_review(owner, run, data, as_owner, tmp_path):
    submit_to_store(run, STORE)
    rows = list(load_questions(data).itertuples())
    perfect = [{"question_id": row.question_id, "response": response_text(row, True)} for row in rows]
    # A perfect score, and then the answers of the first run under another name.
    submit_to_store(write_lines(tmp_path / "p.jsonl", perfect), STORE, "mediconfusion", "Too good", str(data))
    submit_to_store(
        write_lines(tmp_path / "t.jsonl", responses(data)),
        STORE,
        "mediconfusion",
        "A twin",
        str(data),
    )
    as_owner()
    for _ in range(2):
        words = [outcome.status for outcome in verify(STORE, everything=True, data=[str(data)])]
    assert words == ["for a person", "for a person"]
    assert "perfect" in comments(owner, 2)[-1] and "identical to" in comments(owner, 3)[-1]
    assert len(comments(owner, 3)) == 2  # the submitter's opening comment, and ours
    assert accept(f"{STORE}@2", pull_head(owner, 2), data=[str(data)], with_questions=True).status == "added"
    assert any(path.startswith("questions/") for path in main_files(owner))
    assert refuse(f"{STORE}@3", "a copy of\nanother result").status == "refused"
    assert status(owner, 3) == "closed" and "a copy of another result" in comments(owner, 3)[-1]
    assert refuse(f"{STORE}@3", "again").status == "closed already"


def test_untrusted_text_is_never_markup_in_comments(owner, run, data, as_owner):
    propose(owner, submission_files(run, lambda r: r["model"].update(name="``` @curator <img src=x>")))
    as_owner()
    verify(f"{STORE}@1", data=[str(data)])
    text = comments(owner, 1)[-1]
    # The name stays within one code block, where a mention notifies no account.
    assert text.count("```") == 2 and text.index("```") < text.index("@curator") < text.rindex("```")


def test_verifying_requires_write_access(owner, run, data, monkeypatch):
    submit_to_store(run, STORE)
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(BadInput, match="lacks permission"):
        verify(f"{STORE}@1", data=[str(data)])


def test_other_than_a_pull_request_is_a_one_line_error(owner):
    for store in ("ORG/results", "ORG/results@x", "ORG/results@99", "nowhere"):
        with pytest.raises(BadInput) as caught:
            verify(store)
        assert "\n" not in str(caught.value)


def test_copies_of_older_open_pull_requests_are_flagged(owner, run, data, as_owner):
    """The original is not flagged, whichever is verified first."""
    files = submission_files(run)
    original, copy = propose(owner, files), propose(owner, files, token=STRANGER)
    as_owner()
    # Verify the copy first: the age of the pull request decides, not the order of verification.
    for number, word in ((copy, "for a person"), (original, "added")):
        (outcome,) = verify(f"{STORE}@{number}", data=[str(data)])
        assert outcome.status == word, outcome
        assert number == original or f"pull request {original} of reader" in outcome.reasons[0]


def test_untrusted_text_is_bounded_in_output_and_comments():
    lines = [f"problem {number}\x1b" * 100 for number in range(5_000)]
    printed = str(VerifyResult("ORG/results@1", "refused", tuple(lines)))
    assert len(printed) < 30_000 and "and 4,970 more" in printed and "\x1b" not in printed
    landing = Acceptance(account="a", accepted_at=utc_now(), verified_by="b", flags=printable_lines(lines)).to_bytes()
    # What is written must be readable again.
    assert len(landing) < MAX_RECORD_BYTES and parse_record(landing, Acceptance, "x").flags[-1] == "and 4,970 more"


def test_large_files_are_not_downloaded(owner, run, data, as_owner, local_hub, monkeypatch):
    files = submission_files(run)
    propose(owner, files)
    # The limit is checked by the size that the Hub states, before any download.
    monkeypatch.setitem(pull_requests.MAX_BYTES_BY_FILE, "answers.parquet", 100)
    as_owner()
    local_hub.record.clear()
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "refused" and "at most 100 are read" in outcome.reasons[0]
    assert not local_hub.record.requests("GET", "/resolve/")


def test_a_folder_store_is_examined_in_place(run, data, tmp_path):
    stored = Path(submit_to_store(run, tmp_path / "store").location)
    assert [outcome.status for outcome in verify(str(tmp_path / "store"))] == ["verified"]
    assert [outcome.status for outcome in verify(str(tmp_path / "store"), data=[str(data)])] == ["verified"]
    document = read_result(stored / "result.json")
    # A number that the answers do not give.
    document.scores["confusion"].value = 12.5
    (stored / "result.json").write_text(document.to_json())
    (outcome,) = verify(str(tmp_path / "store"))
    assert outcome.status == "refused" and "not what its answers give" in outcome.reasons[0]


def test_by_command(owner, data, as_owner, tmp_path):
    def medprobe(*arguments, token):
        done = commands.medprobe(*arguments, cwd=tmp_path, HF_TOKEN=token)
        return done.stdout + done.stderr

    as_owner()
    publish(data, "medlab/phantoms")
    answers = write_lines(tmp_path / "answers.csv.jsonl", responses(data))
    options = ("--benchmark", "mediconfusion", "--model", "Foreign 7B", "--data", "medlab/phantoms", "--to", STORE)
    assert "would add results/" in medprobe("submit", answers, *options, "--dry-run", token=READER)
    assert "discussions/1" in medprobe("submit", answers, *options, token=READER)
    output = medprobe("verify", STORE, "--all", "--data", "medlab/phantoms", token=CURATOR)
    assert f"{STORE}@1: added" in output


@pytest.mark.exhaustive
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


def test_each_request_is_retried_on_its_own(owner, run, data, local_hub, as_owner):
    """A Hub that fails about every sixth request, or loses the response to a commit, must neither
    fail a submission nor add it twice.
    """
    for path in (
        "whoami",
        "/api/datasets/ORG/results$",
        "paths-info",
        "discussions",
        "preupload",
        "/commit/",
    ):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    local_hub.faults.add("/commit/", RESET, method="POST", lose_response=True)
    assert submit_to_store(run, STORE).location.endswith("/discussions/1")
    assert len(list(owner.get_repo_discussions(STORE, repo_type="dataset"))) == 1
    as_owner()
    for path in ("revision", "paths-info", "/discussions/1$", "/comment", "/status", "/commit/"):
        local_hub.faults.add(path, 503, headers={"Retry-After": "0"})
    local_hub.faults.add("/commit/", 412, method="POST")
    local_hub.faults.add("/commit/", 503, method="POST", lose_response=True)
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
