"""Check that only content that we have rewritten is accepted, and that no pull request delays the
verdict on another.
"""

import json
import random
import shlex
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import HfApi

from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from eval_harness.records.limits import Limits
from eval_harness.store import pull_requests, sandbox
from eval_harness.store.dataset_lookup import load_split, require_dataset
from eval_harness.store.examine import examine_in_sandbox
from eval_harness.store.sandbox import LimitExceeded
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import rescore_store, verify
from tests import commands
from tests.eval_harness.store.submitting import (
    REPO,
    STORE,
    comments,
    edit_answers,
    load_questions,
    main_files,
    make_phantom,
    propose,
    pull_head,
    response_text,
    run_folder,
    status,
    submission_files,
)
from tests.eval_harness.store.untrusted import hostile
from tests.helpers import edit_json, write_lines
from tests.localhub.accounts import CURATOR, READER, STRANGER

OURS = "ORG/phantoms"
DEADLOCK = Path(__file__).resolve().parents[4] / "shared/sources/gate/deadlock.parquet"


@pytest.mark.exhaustive
@pytest.mark.usefixtures("examine_in_child")
@pytest.mark.parametrize("batch", range(0, 200, 50))
def test_altered_files_are_refused_or_read_back_as_scored(run, data, batch):
    sent, repository = build_submission(run, data=str(data)).sent, open_repository(data)
    dataset = load_split(repository, repository.splits[0], is_vouched=True)
    assert sent.answers in surviving_files(sent, dataset, range(batch, batch + 50))


def surviving_files(sent, dataset, seeds: range) -> list[bytes]:
    """Return what is stored of mutated files.

    A file that kills its reading process is refused; the others are read again without it.
    """
    try:
        return sandbox.run_sandboxed(Limits(1, 1, 1, 60), hostile.accept_mutations, sent, dataset, seeds)
    except LimitExceeded:
        middle = len(seeds) // 2
        return [
            seed for half in (seeds[:middle], seeds[middle:]) if middle for seed in surviving_files(sent, dataset, half)
        ]


@pytest.mark.exhaustive
@pytest.mark.usefixtures("examine_in_child")
@pytest.mark.sources
@pytest.mark.skipif(not DEADLOCK.is_file(), reason="../shared/sources is not here")
def test_a_file_that_hangs_readers_is_rewritten(tmp_path):
    data, content = make_phantom("probmed", tmp_path / "data"), DEADLOCK.read_bytes()
    sent = build_submission(run_folder(data, tmp_path / "run"), data=str(data)).sent
    submission = examine_in_sandbox(sent._replace(answers=content), partial(require_dataset, data=str(data)))
    assert submission.problems == [] and submission.sent.answers != content
    (tmp_path / "kept.parquet").write_bytes(submission.sent.answers)
    for name in load_questions(data)["question_id"]:
        assert pq.read_table(tmp_path / "kept.parquet", filters=[("question_id", "=", name)]).num_rows == 1


def test_empty_runs_and_unverified_files_do_not_stop_checks(run, data, tmp_path):
    """A run without delivered answers cannot be compared; unverified files are never read."""
    store, silent = tmp_path / "store", Path(shutil.copytree(run, tmp_path / "silent"))
    folder = Path(submit_to_store(run, store).location)
    stranger = Path(shutil.copytree(folder, folder.with_name("merged-by-hand")))
    (stranger / "acceptance.json").unlink()
    pq.write_table(pa.table({"question_id": [1], "choice": [{"a": 1}]}), stranger / "readings.parquet")
    edit_json(stranger / "result.json", lambda document: document.update(key="another"))
    edit_answers(silent, lambda rows: [row.update(delivery="no response", response="") for row in rows])
    (silent / "answers.jsonl").unlink()
    edit_json(silent / "run.json", lambda document: document["model"].update(name="Silent"))
    assert submit_to_store(silent, store, account="another", data=str(data)).new
    outcomes = {outcome.target: outcome.status for outcome in verify(str(store), data=[str(data)])}
    assert sorted(outcomes.values()) == ["refused", "verified", "verified"]
    (skipped,) = (outcome for outcome in rescore_store(store) if outcome.skipped)
    assert skipped.folder == stranger.relative_to(store).as_posix()


@pytest.fixture
def honest(owner, data, tmp_path, monkeypatch):
    """Open an honest pull request on the owner's published dataset; return its number."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(data, OURS)

    def propose_honest() -> int:
        monkeypatch.setenv("HF_TOKEN", STRANGER)
        answers = [
            {"question_id": row.question_id, "response": "AB"[n % 3 > 1]}
            for n, row in enumerate(load_questions(data).itertuples())
        ]
        done = submit_to_store(
            write_lines(tmp_path / "honest.jsonl", answers),
            STORE,
            "mediconfusion",
            "Honest 7B",
            OURS,
        )
        monkeypatch.setenv("HF_TOKEN", CURATOR)
        return int(done.location.rsplit("/", 1)[1])

    return propose_honest


@pytest.mark.usefixtures("examine_in_child")
@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(2))
def test_hostile_pull_requests_do_not_block_honest_ones(owner, run, data, honest, seed, tmp_path, capfd):
    rng, api = random.Random(seed), HfApi(endpoint=owner.endpoint, token=READER)
    for number in range(8):
        folder = Path(shutil.copytree(data, tmp_path / f"altered-{number}"))
        hostile.alter_dataset(folder, rng)
        repo = f"reader/altered-{number}"
        api.create_repo(repo, repo_type="dataset")
        api.upload_folder(folder_path=folder, repo_id=repo, repo_type="dataset")
        commit = api.repo_info(repo, repo_type="dataset").sha
        propose(
            owner,
            submission_files(run, lambda r: r["benchmark"].update(repo=repo, revision=commit)),  # noqa: B023
        )
    files = submission_files(run)
    (path,) = (path for path in files if path.endswith("run.json"))
    document = json.loads(files[path])
    document["benchmark"] |= {
        "repo": OURS,
        "revision": owner.repo_info(OURS, repo_type="dataset").sha,
    }
    documents = [hostile.alter_value(document, rng) for _ in range(8)]
    for repo in ("medvqa/..", "x/a--b", "x/" + "a" * 97, "x", "\x00/y"):
        documents.append(document | {"benchmark": document["benchmark"] | {"repo": repo}})
    for altered_run in documents:
        propose(owner, {**files, path: json.dumps(altered_run).encode()})
    number = honest()
    outcomes = {outcome.target: outcome for outcome in verify(STORE, everything=True)}
    assert outcomes.pop(f"{STORE}@{number}").status == "added"
    assert {outcome.status for outcome in outcomes.values()} <= {
        "refused",
        "for a person",
        "added",
    }, outcomes
    public = "".join(text for target in outcomes for text in comments(owner, int(target.rsplit("@", 1)[1])))
    assert str(tmp_path) not in public and "/snapshots/" not in public and "Traceback" not in public


def test_slow_submissions_are_postponed_and_refusals_remembered(owner, run, data, honest, as_owner, monkeypatch):
    """Slow means longer than the first round allows."""
    for name in ("Slow 1", "Slow 2"):
        propose(owner, submission_files(run, lambda r, name=name: r["model"].update(name=name)))
    number, reported, examined_here = honest(), [], pull_requests.examine_in_sandbox

    def slow(sent, find):
        if b"Slow" in sent.run and sandbox._TIME_LIMIT.get() < 100:
            raise sandbox.Postponed("it takes long to be read")
        return examined_here(sent, find)

    monkeypatch.setattr(pull_requests, "examine_in_sandbox", slow)
    outcomes = verify(STORE, everything=True, tell=reported.append)
    assert (reported[0].target, reported[0].status) == (f"{STORE}@{number}", "added")
    assert [outcome.status for outcome in outcomes[:2]] == ["refused", "refused"]
    # verdicts are remembered: nothing may be examined again
    monkeypatch.setattr(pull_requests, "examine_in_sandbox", None)
    assert [outcome.reasons for outcome in verify(STORE, everything=True)] == [
        outcome.reasons for outcome in outcomes[:2]
    ]
    monkeypatch.setattr(pull_requests, "examine_in_sandbox", examined_here)
    # with another dataset the verdict must be computed again
    again = verify(STORE, everything=True, data=[str(data)])
    assert [outcome.status for outcome in again] == ["refused", "refused"]


def test_the_printed_command_accepts_only_the_reviewed_commit(owner, run, data, as_owner, tmp_path, local_hub):
    moved = Path(shutil.copytree(data, tmp_path / "a folder's data"))
    rows = [
        {"question_id": row.question_id, "response": response_text(row, True)}
        for row in load_questions(data).itertuples()
    ]
    for name in ("Too good", "Too good, too"):
        submit_to_store(write_lines(tmp_path / "p.jsonl", rows), STORE, "mediconfusion", name, str(data))
    as_owner()
    output = commands.medprobe("verify", f"{STORE}@1", "--data", moved, cwd=tmp_path, HF_TOKEN=CURATOR).stdout
    (printed,) = (line for line in output.splitlines() if "medprobe accept" in line)
    arguments = shlex.split(printed.partition("medprobe ")[2])
    head = pull_head(owner, 1)
    assert head in arguments and str(moved) in arguments
    assert not any(str(tmp_path) in text for text in comments(owner, 1))
    api = HfApi(endpoint=owner.endpoint, token=READER)
    (path,) = (path for path in api.list_repo_files(**REPO, revision="refs/pr/1") if path.endswith("answers.parquet"))
    api.upload_file(path_or_fileobj=b"evil", path_in_repo=path, revision="refs/pr/1", **REPO)
    main_before = main_files(owner)
    refused = commands.medprobe(*arguments, cwd=tmp_path, HF_TOKEN=CURATOR, code=2).stderr
    assert "its commit is now" in refused and main_files(owner) == main_before
    verdict = verify(f"{STORE}@2", data=[str(moved)])[0]
    assert verdict.status == "for a person"
    arguments = shlex.split(verdict.commands[0].partition("medprobe ")[2])
    without = commands.medprobe(*arguments[:4], cwd=tmp_path, HF_TOKEN=CURATOR, code=2).stderr
    assert "refused" in without and len(comments(owner, 2)) == 2, "a forgotten --data refuses nobody in public"
    assert "added" in commands.medprobe(*arguments, cwd=tmp_path, HF_TOKEN=CURATOR).stdout
    assert status(owner, 2) == "closed"


def test_verdicts_do_not_reveal_private_datasets(owner, run, data, as_owner, monkeypatch):
    """The verifier's token never reads a dataset that a submission names."""
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(data, "ORG/secret", private=True)
    commit = owner.repo_info("ORG/secret", repo_type="dataset").sha
    for repo in ("ORG/secret", "ORG/absent"):
        propose(
            owner,
            submission_files(run, lambda r, repo=repo: r["benchmark"].update(repo=repo, revision=commit)),
        )
    verify(STORE, everything=True)
    texts = [comments(owner, number)[-1].replace("secret", "absent") for number in (1, 2)]
    strip = [text.partition("```")[2] for text in texts]
    assert strip[0] == strip[1] and "Refused" in texts[0]
