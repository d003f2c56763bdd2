"""Submitting to, and verifying, a results store on a loopback Hub with the real client."""

from pathlib import Path

import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from eval_harness.answer_files.untrusted import printable_lines
from eval_harness.interop.convert import convert_and_submit
from eval_harness.records.result import read_result
from eval_harness.store import pull_requests
from eval_harness.store.acceptance import MAX_BYTES, Acceptance, parse_record, utc_now
from eval_harness.store.pull_requests import VerifyResult
from eval_harness.store.verification import accept, refuse, verify
from tests import commands
from tests.eval_harness.store.submitting import questions_of, responses, said
from tests.eval_harness.store.verifying import REPO, STORE, comments, files_of, head_of, main_files, propose, status
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER, STRANGER
from tests.localhub.faults import RESET


def test_a_submission_is_one_pull_request_that_only_adds(owner, run):
    before = main_files(owner)
    done = convert_and_submit(run, STORE)
    assert done.new and done.location.endswith("/datasets/ORG/results/discussions/1")
    assert main_files(owner) == before
    added = set(owner.list_repo_files(**REPO, revision="refs/pr/1")) - set(owner.list_repo_files(**REPO))
    assert added == {f"{done.submission.folder}/{name}" for name in ("answers.parquet", "run.json")}
    again = convert_and_submit(run, STORE)
    assert (again.new, again.location) == (False, done.location)
    assert len(list(owner.get_repo_discussions(STORE, repo_type="dataset"))) == 1


def test_a_lost_answer_makes_no_second_pull_request(owner, run, local_hub):
    local_hub.faults.add("/commit/", RESET, method="POST", lose_response=True)
    assert convert_and_submit(run, STORE).location.endswith("/discussions/1")
    assert len(list(owner.get_repo_discussions(STORE, repo_type="dataset"))) == 1


def test_no_store_and_no_token_are_one_line(owner, run, monkeypatch):
    with pytest.raises(BadInput, match="ORG/absent"):
        convert_and_submit(run, "ORG/absent")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(BadInput, match="no Hub token"):
        convert_and_submit(run, STORE)


def test_a_clean_one_is_added_byte_for_byte_and_closed(owner, run, data, as_owner, local_hub):
    done = convert_and_submit(run, STORE)
    files, before = done.submission.files(), main_files(owner)
    as_owner()
    local_hub.record.clear()
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "added", outcome
    after = main_files(owner)
    derived = done.submission.derived_files()
    acceptance = f"{done.submission.folder}/acceptance.json"
    assert set(after) - set(before) == {*files, *derived, acceptance} and all(
        after[path] == oid for path, oid in before.items()
    )
    for path, content in (files | derived).items():
        assert Path(owner.hf_hub_download(**REPO, filename=path)).read_bytes() == content
    asked = {each.path for each in local_hub.record.requests("GET", "/resolve/")}
    assert asked and not any("notes" in path for path in asked)
    assert status(owner, 1) == "closed" and "Verified" in comments(owner, 1)[-1]
    commits = len(owner.list_repo_commits(**REPO))
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "closed already"
    assert verify(STORE, everything=True, data=[str(data)]) == []
    assert len(owner.list_repo_commits(**REPO)) == commits
    assert "tree/main" in convert_and_submit(run, STORE).location


def test_a_later_push_is_not_taken(owner, run, data, as_owner, monkeypatch):
    done = convert_and_submit(run, STORE)
    as_owner()
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


LIES = {
    "its questions are not those": lambda r: r["benchmark"].update(asked="0" * 64),
    "origin": lambda r: r["benchmark"].update(origin="official"),
    "belong in": lambda r: r["model"].update(name="Another model"),
    "does not name a dataset revision": lambda r: (
        r["benchmark"].update(name="../../x"),
        r["request"].update(benchmark="../../x"),
    ),
    "samples of each question": lambda r: (r["method"].update(samples=10**9), r["request"].update(samples=10**9)),
    "method.judge must name": lambda r: r["method"].update(judge={"model": "GPT-4o"}),
}


def test_what_is_not_so_is_refused_once_with_a_reason(owner, run, data, as_owner):
    numbers = [propose(owner, files_of(run, change)) for change in LIES.values()]
    before = main_files(owner)
    as_owner()
    for _ in range(2):
        outcomes = verify(STORE, everything=True, data=[str(data)])
        for words, outcome in zip(LIES, outcomes, strict=True):
            assert outcome.status == "refused" and words in " ".join(outcome.reasons), outcome
    assert main_files(owner) == before
    for number in numbers:
        assert status(owner, number) == "open"
        assert len([text for text in comments(owner, number) if "Refused" in text]) == 1


def test_a_pull_request_that_does_more_than_add_a_result_is_refused(owner, run, data, as_owner):
    files = files_of(run)
    folder = next(iter(files)).rsplit("/", 1)[0]
    owner.upload_file(path_or_fileobj=b"kept", path_in_repo="notes/README.txt", **REPO)
    propose(owner, files, delete=["notes/README.txt"])
    propose(owner, {**files, "notes/README.txt": b"changed"})
    propose(owner, {**files, f"{folder}/run.py": b"import os"})
    propose(owner, {f"{folder}/run.json": files[f"{folder}/run.json"]})
    propose(owner, {**files, "results/mediconfusion/Other/run/run.json": b"{}"})
    propose(owner, {"README.md": b"hello"})
    for name in ("result.json", "units.parquet", "acceptance.json"):
        propose(owner, {**files, f"{folder}/{name}": b"{}"})
    before = main_files(owner)
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
    assert main_files(owner) == before


def test_main_that_moved_on_is_no_deletion(owner, run, data, as_owner):
    convert_and_submit(run, STORE)
    owner.upload_file(path_or_fileobj=b"later", path_in_repo="notes/later.txt", **REPO)
    as_owner()
    assert verify(f"{STORE}@1", data=[str(data)])[0].status == "added"
    assert "notes/later.txt" in main_files(owner)


def test_flagged_ones_wait_for_a_human(owner, run, data, as_owner, tmp_path):
    convert_and_submit(run, STORE)
    rows = list(questions_of(data).itertuples())
    perfect = [{"question_id": row.question_id, "response": said(row, True)} for row in rows]
    convert_and_submit(write_lines(tmp_path / "p.jsonl", perfect), STORE, "mediconfusion", "Too good", str(data))
    convert_and_submit(write_lines(tmp_path / "t.jsonl", responses(data)), STORE, "mediconfusion", "A twin", str(data))
    as_owner()
    for _ in range(2):
        words = [outcome.status for outcome in verify(STORE, everything=True, data=[str(data)])]
    assert words == ["for a person", "for a person"]
    assert "perfect" in comments(owner, 2)[-1] and "identical to" in comments(owner, 3)[-1]
    assert len(comments(owner, 3)) == 2  # what it opened with, and ours
    assert accept(f"{STORE}@2", head_of(owner, 2), data=[str(data)], with_questions=True).status == "added"
    assert any(path.startswith("questions/") for path in main_files(owner))
    assert refuse(f"{STORE}@3", "a copy of\nanother result").status == "refused"
    assert status(owner, 3) == "closed" and "a copy of another result" in comments(owner, 3)[-1]
    assert refuse(f"{STORE}@3", "again").status == "closed already"


def test_strangers_words_are_no_markup_in_a_comment(owner, run, data, as_owner):
    propose(owner, files_of(run, lambda r: r["model"].update(name="``` @curator <img src=x>")))
    as_owner()
    verify(f"{STORE}@1", data=[str(data)])
    text = comments(owner, 1)[-1]
    assert text.count("```") == 2 and text.index("```") < text.index("@curator") < text.rindex("```")


def test_only_who_may_write_verifies(owner, run, data, monkeypatch):
    convert_and_submit(run, STORE)
    monkeypatch.setenv("HF_TOKEN", STRANGER)
    with pytest.raises(BadInput, match="no right"):
        verify(f"{STORE}@1", data=[str(data)])


def test_what_is_no_pull_request_is_one_line(owner):
    for store in ("ORG/results", "ORG/results@x", "ORG/results@99", "nowhere"):
        with pytest.raises(BadInput) as caught:
            verify(store)
        assert "\n" not in str(caught.value)


def test_a_copy_of_an_older_open_pull_request_is_flagged_and_not_the_original(owner, run, data, as_owner):
    """Whichever is verified first."""
    files = files_of(run)
    first, second = propose(owner, files), propose(owner, files, token=STRANGER)
    as_owner()
    for number, word in ((second, "for a person"), (first, "added")):
        (outcome,) = verify(f"{STORE}@{number}", data=[str(data)])
        assert outcome.status == word, outcome
        assert number == first or f"pull request {first} of reader" in outcome.reasons[0]


def test_what_is_told_and_kept_of_strangers_words_is_bounded():
    lines = [f"problem {number}\x1b" * 100 for number in range(5_000)]
    told = str(VerifyResult("ORG/results@1", "refused", tuple(lines)))
    assert len(told) < 30_000 and "and 4,970 more" in told and "\x1b" not in told
    landing = Acceptance(account="a", accepted_at=utc_now(), verified_by="b", flags=printable_lines(lines)).to_bytes()
    assert len(landing) < MAX_BYTES and parse_record(landing, Acceptance, "x").flags[-1] == "and 4,970 more"


def test_large_files_are_not_even_fetched(owner, run, data, as_owner, local_hub, monkeypatch):
    files = files_of(run)
    propose(owner, files)
    monkeypatch.setattr(pull_requests, "MAX_FILE_BYTES", 100)
    as_owner()
    local_hub.record.clear()
    (outcome,) = verify(f"{STORE}@1", data=[str(data)])
    assert outcome.status == "refused" and "at most 100 are read" in outcome.reasons[0]
    assert not local_hub.record.requests("GET", "/resolve/")


def test_a_folder_store_is_examined_where_it_lies(run, data, tmp_path):
    stored = Path(convert_and_submit(run, tmp_path / "store").location)
    assert [outcome.status for outcome in verify(str(tmp_path / "store"))] == ["verified"]
    assert [outcome.status for outcome in verify(str(tmp_path / "store"), data=[str(data)])] == ["verified"]
    document = read_result(stored / "result.json")
    document.scores["confusion"].value = 12.5
    (stored / "result.json").write_text(document.to_json())
    (outcome,) = verify(str(tmp_path / "store"))
    assert outcome.status == "refused" and "not what its answers give" in outcome.reasons[0]


def test_from_a_published_dataset_to_the_store_by_command(owner, local_hub, data, tmp_path):
    where = "medlab"

    def medprobe(*arguments, token):
        done = commands.medprobe(*arguments, cwd=tmp_path, HF_TOKEN=token)
        return done.stdout + done.stderr

    medprobe("publish", data, f"{where}/phantoms", token=CURATOR)
    answers = write_lines(tmp_path / "answers.csv.jsonl", responses(data))
    options = ("--benchmark", "mediconfusion", "--model", "Foreign 7B", "--data", f"{where}/phantoms", "--to", STORE)
    assert "would add results/" in medprobe("submit", answers, *options, "--dry-run", token=READER)
    assert "discussions/1" in medprobe("submit", answers, *options, token=READER)
    told = medprobe("verify", f"{STORE}@1", token=CURATOR)
    assert "vouches" in told, "somebody else's dataset: the store's owner has to vouch for it"
    told = medprobe("verify", f"{STORE}@1", "--data", f"{where}/phantoms", token=CURATOR)
    assert f"{STORE}@1: added" in told
    assert "nothing to verify" in medprobe("verify", STORE, "--all", token=CURATOR)
