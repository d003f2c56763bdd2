"""Scoring against hidden answers: what is disclosed, what never is, and the daily limit
per user.
"""

import contextlib
import hashlib
import json
import logging
import os
import pickle
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub import HfApi

from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from eval_harness.derive.metrics import compute_scores
from eval_harness.derive.reading import read_responses
from eval_harness.store import hidden_test, ledger
from eval_harness.store.hidden_test import HiddenScore, HiddenTest
from tests.eval_harness.store.checks.hidden import (
    MULTIPLE,
    SINGLE,
    build_test,
    make_key,
    write_upload,
    wrong_letters,
)
from tests.helpers import edit_json, refused, write_lines
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.server import RESET

LEDGER = {"repo_id": "ORG/ledger", "repo_type": "dataset"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return build_test(tmp_path_factory.mktemp("hidden"))


@pytest.fixture
def test(folders, tmp_path):
    """A hidden test whose three sources are folders."""
    return HiddenTest(str(folders[0]), str(folders[1]), str(tmp_path / "ledger"))


@pytest.fixture
def on_hub(local_hub, folders, monkeypatch):
    """The same test on a Hub: public questions, private answers and ledger; makes a new
    HiddenTest.
    """
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(folders[0], "ORG/gmai")
    publish(folders[1], "ORG/gmai-answers", private=True)
    HfApi(endpoint=local_hub.endpoint, token=CURATOR).create_repo(**LEDGER, private=True)
    monkeypatch.setenv("HF_TOKEN", READER)
    return lambda **options: HiddenTest("ORG/gmai", "ORG/gmai-answers", "ORG/ledger", token=CURATOR, **options)


def ledger_scorings(user: str) -> list[dict]:
    """Return a user's scorings in the ledger on the Hub."""
    api = HfApi(endpoint=os.environ["HF_ENDPOINT"], token=CURATOR)
    try:
        path = api.hf_hub_download(**LEDGER, filename=f"users/{user}.json")
    except huggingface_hub.errors.RemoteEntryNotFoundError:
        return []
    return json.loads(Path(path).read_text())["scorings"]


def test_the_score_is_the_papers_metric_with_one_decimal(test, folders, tmp_path):
    path = write_upload(tmp_path / "a.jsonl", right=47)
    score = test.score(path, "Model A", "ann")
    assert score == HiddenScore(78.3, SINGLE, 1, datetime.now(UTC).date().isoformat(), "accuracy")
    # Score the same answers with the key in the open, by the ordinary route.
    questions = open_repository(folders[0]).questions("test")
    questions["answer"] = [
        [" ABCD".index(letter) - 1 for letter in make_key()[name]] for name in questions["question_id"]
    ]
    frame = questions[["question_id"]].assign(
        response=[json.loads(line)["response"] for line in path.read_text().splitlines()],
        status="answered",
        sample=0,
    )
    result = compute_scores("gmai-mmbench", questions, read_responses(frame, questions, "gmai-mmbench"))
    assert round(result.scores["accuracy"].value, 1) == score.value


def test_multiple_choice_has_its_own_metric(folders, tmp_path):
    test = HiddenTest(str(folders[0]), str(folders[1]), str(tmp_path / "ledger"), metric="mcq_accuracy")
    answers = [
        {
            "question_id": name,
            # Wrong on every single-choice question, which this metric must not count.
            "response": ", ".join(letters if len(letters) > 1 else wrong_letters(letters)),
        }
        for name, letters in make_key().items()
    ]
    score = test.score(write_lines(tmp_path / "a.jsonl", answers), "Model", "ann")
    assert (score.value, score.questions, score.metric) == (100.0, MULTIPLE, "mcq_accuracy")


def test_the_daily_limit_is_enforced_and_names_the_next_day(test, tmp_path):
    assert test.remaining("Ann") == 2
    for number in range(2):
        assert test.score(write_upload(tmp_path / "a.jsonl", 10, seed=number), "Model", "Ann").remaining == 1 - number
    line = refused(test.score, write_upload(tmp_path / "a.jsonl", 10, seed=2), "Model", "ann")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    assert "all 2 scorings" in line and tomorrow in line and "00:00 UTC" in line
    # The limit is per user, whatever the case of the name.
    assert (test.remaining("ANN"), test.remaining("bob")) == (0, 2)
    assert test.score(write_upload(tmp_path / "a.jsonl", 10, seed=2), "Model", "bob").value == 16.7
    edit_json(
        tmp_path / "ledger/users/ann.json",
        # On the next day both attempts are available again.
        lambda d: [scoring.update(day="2026-01-01") for scoring in d["scorings"]],
    )
    assert test.score(write_upload(tmp_path / "a.jsonl", 10, seed=2), "Model", "ann").remaining == 1


def test_scoring_the_same_answers_again_is_free(test, tmp_path):
    path = write_upload(tmp_path / "a.jsonl", 33)
    score = test.score(path, "Model", "ann")
    records = [json.loads(line) for line in path.read_text().splitlines()]
    # The same choices in other bytes: another order, and a field that is not scored.
    again = write_lines(tmp_path / "other.jsonl", [{**record, "seconds": 1.5} for record in reversed(records)])
    assert test.score(path, "Another name", "ann") == test.score(again, "Model", "ann") == score
    test.score(write_upload(tmp_path / "b.jsonl", 34), "Model", "ann")
    assert test.score(path, "Model", "ann").remaining == 0
    assert len(json.loads((tmp_path / "ledger/users/ann.json").read_text())["scorings"]) == 2


def test_the_ledger_records_user_time_and_model_but_no_answers(test, tmp_path):
    path = write_upload(tmp_path / "a.jsonl", 33)
    test.score(path, "Model A", "ann")
    test.score(path, "Model B", "bob")
    entry, second_entry = (
        json.loads((tmp_path / f"ledger/users/{user}.json").read_text())["scorings"][0] for user in ("ann", "bob")
    )
    # Copied answers must be visible in the ledger although it does not contain them.
    assert entry["choices"] == second_entry["choices"], "who sends another's answers is seen"
    assert (entry["model"], entry["score"], entry["day"]) == (
        "Model A",
        55.0,
        datetime.now(UTC).date().isoformat(),
    )
    assert entry["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    for file in (tmp_path / "ledger").rglob("*.json"):
        assert "response" not in file.read_text() and not any(name in file.read_text() for name in ('"1000"', '"2000"'))


REFUSED_FILES = {
    "3 of 68 questions are not answered ('1000', '1001', '1002')": lambda r: r[3:],
    "1 of 68 questions is without a response": lambda r: [{**r[0], "response": None}, *r[1:]],
    "line 69: question 'nobody' is not in this split": lambda r: [
        *r,
        {"index": "nobody", "response": "A"},
    ],
    "line 69: question '1000', sample 0, is answered twice": lambda r: [*r, r[0]],
    "2 samples": lambda r: [*r, {**r[0], "sample": 1}],
    "line 1: response: ": lambda r: [{**r[0], "response": 5}, *r[1:]],
}


def test_a_file_must_answer_every_question_once(test, tmp_path):
    records = [json.loads(line) for line in write_upload(tmp_path / "a.jsonl", 30).read_text().splitlines()]
    for words, change in REFUSED_FILES.items():
        path = write_lines(tmp_path / "b.jsonl", change(records))
        (problem, *_) = test.check(path)
        # The message must not reveal where the server keeps uploads.
        assert problem.startswith("b.jsonl") and words in problem and str(tmp_path) not in problem
    line = refused(test.score, path, "Model", "ann")
    assert words in line and "Nothing was scored or counted" in line
    assert test.remaining("ann") == 2 and test.check(write_upload(tmp_path / "a.jsonl", 30)) == []
    assert not (tmp_path / "ledger/users").exists()


def test_hostile_files_are_refused_and_cost_nothing(test, tmp_path):
    path = tmp_path / "a.bin"
    for content in (
        pickle.dumps([1]),
        # Beginnings of a zip and of a Parquet file, deep JSON, and broken UTF-16.
        b"PK\x03\x04",
        b"PAR1" + b"\0" * 90,
        b"",
        b"[" * 100_000,
        b"\xff\xfe\x00",
    ):
        path.write_bytes(content)
        (problem,) = test.check(path)
        assert problem.startswith("a.bin") and problem.isprintable()
        assert "Nothing was scored" in refused(test.score, path, "Model", "ann")
    assert test.remaining("ann") == 2


USERS = (
    "../../etc/passwd",
    "a/b",
    "..",
    ".hidden",
    "a\0b",
    "a" * 97,
    "Jos\u00e9",
    # The Kelvin sign, which case folding turns into an ASCII k.
    "\u212aim",
    "a b",
    "a\n",
    # An Arabic digit.
    "\u0661",
)


def test_user_names_cannot_be_paths_and_are_case_insensitive(test, tmp_path):
    path = write_upload(tmp_path / "a.jsonl", 30)
    for user in USERS:
        assert "user name" in refused(test.remaining, user)
        assert "user name" in refused(test.score, path, "Model", user)
    for user in ("", "  ", None):
        assert "sign in" in refused(test.score, path, "Model", user)
    assert "model name" in refused(test.score, path, "<b>mine</b>", "ann")
    assert not (tmp_path / "ledger").exists()


def test_a_damaged_ledger_is_not_treated_as_empty(test, tmp_path):
    test.score(write_upload(tmp_path / "a.jsonl", 30), "Model", "ann")
    file = tmp_path / "ledger/users/ann.json"
    content = file.read_text()
    # An empty ledger would give the user new attempts.
    for damaged in (content[:40], "[]", "{}", '{"scorings": [{}]}'):
        file.write_text(damaged)
        refused(test.score, write_upload(tmp_path / "b.jsonl", 31), "Model", "ann")
        assert file.read_text() == damaged


def test_a_key_of_another_test_is_refused_without_quoting_it(folders, tmp_path):
    ledger, path = str(tmp_path / "ledger"), write_upload(tmp_path / "a.jsonl", 30)
    # A key with one question more belongs to another test.
    longer = build_test(tmp_path / "longer", make_key() | {"3000": "C"})
    lines = [refused(HiddenTest(str(folders[0]), str(longer[1]), ledger).score, path, "Model", "ann")]
    lines.append(refused(HiddenTest(str(folders[0]), str(tmp_path / "none"), ledger).score, path, "Model", "ann"))
    lines.append(refused(HiddenTest(str(tmp_path / "nowhere"), str(folders[1]), ledger).check, path))
    assert all(word in line for word, line in zip(("not those", "not a folder", "nowhere"), lines, strict=True))
    assert not any("3000" in line for line in lines) and not (tmp_path / "ledger").exists()
    for bad in ({"per_day": 0}, {"metric": "x"}):
        with pytest.raises(BadInput):
            HiddenTest(str(folders[0]), str(folders[1]), ledger, **bad)


def test_a_failed_scoring_never_quotes_the_key_and_is_not_counted(test, tmp_path, monkeypatch, caplog):
    def breaks(*_):
        raise ValueError(f"the key is {make_key()}")

    path = write_upload(tmp_path / "a.jsonl", 30)
    with monkeypatch.context() as broken, caplog.at_level(logging.DEBUG):
        broken.setattr(hidden_test, "compute_units", breaks)
        line = refused(test.score, path, "Model", "ann")
    # Neither the message nor any log level may contain the key.
    assert "key is" not in line + caplog.text and "nothing was counted" in line
    assert test.remaining("ann") == 2
    assert test.score(path, "Model", "ann").remaining == 1


def test_scoring_on_the_hub(on_hub, tmp_path, local_hub):
    test = on_hub()
    path = write_upload(tmp_path / "a.jsonl", 33)
    assert test.score(path, "Model A", "ann").value == 55.0
    # Scoring the same file again needs no commit.
    local_hub.record.clear()
    assert on_hub().score(path, "Model A", "ann").remaining == 1
    assert not local_hub.record.requests("POST", "/commit/")
    assert [scoring["score"] for scoring in ledger_scorings("ann")] == [55.0]
    cache = Path(huggingface_hub.constants.HF_HUB_CACHE)
    # The key must not remain in a cache on the disk.
    assert not any(cache.glob("*gmai-answers*"))


def test_answers_and_ledger_must_be_private(on_hub, tmp_path, local_hub):
    path = write_upload(tmp_path / "a.jsonl", 33)
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    # A public key or ledger would reveal the answers or the choices.
    for name in ("ORG/gmai-answers", "ORG/ledger"):
        api.update_repo_settings(name, repo_type="dataset", private=False)
        line = refused(on_hub().score, path, "Model", "ann")
        assert name in line and "public" in line
        api.update_repo_settings(name, repo_type="dataset", private=True)
    assert ledger_scorings("ann") == []
    stranger = HiddenTest("ORG/gmai", "ORG/gmai-answers", "ORG/ledger", token=READER)
    assert "cannot see it" in refused(stranger.score, path, "Model", "ann")


@pytest.mark.parametrize(("fault", "fails_after"), [(412, False), (RESET, True)])
def test_a_lost_response_is_recorded_once(on_hub, tmp_path, local_hub, fault, fails_after):
    # 412: another commit came first. A reset loses the response after the commit was made.
    local_hub.faults.add("/commit/", fault, method="POST", lose_response=fails_after)
    assert on_hub().score(write_upload(tmp_path / "a.jsonl", 33), "Model", "ann").remaining == 1
    assert len(ledger_scorings("ann")) == 1


@pytest.mark.slow
def test_an_unreadable_ledger_is_not_treated_as_empty(on_hub, tmp_path, local_hub, monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    test = on_hub(per_day=1)
    test.score(write_upload(tmp_path / "a.jsonl", 33), "Model", "ann")
    # Each of the requests by which the ledger is read may fail.
    for path in ("/paths-info/", "/resolve/.*users", "/api/datasets/ORG/ledger"):
        local_hub.faults.add(path, 503, times=1000)
        refused(test.score, write_upload(tmp_path / "b.jsonl", 34), "Model", "ann")
        local_hub.faults.clear()
    assert len(ledger_scorings("ann")) == 1


def test_a_scoring_of_another_process_in_between_is_counted(on_hub, tmp_path, monkeypatch):
    """Between reading the ledger and writing it, another process records a scoring."""
    monkeypatch.setattr(ledger, "_CHANGE_LOCK", contextlib.nullcontext())  # it keeps only threads apart
    commit = ledger.commit_files

    def commit_later(*arguments, **options):
        monkeypatch.setattr(ledger, "commit_files", commit)
        assert on_hub().score(write_upload(tmp_path / "b.jsonl", 30, seed=1), "Model", "ann").remaining == 1
        return commit(*arguments, **options)

    monkeypatch.setattr(ledger, "commit_files", commit_later)
    assert on_hub().score(write_upload(tmp_path / "a.jsonl", 30), "Model", "ann").remaining == 0
    assert len(ledger_scorings("ann")) == 2


def test_threads_and_instances_share_the_daily_limit_in_a_folder(folders, tmp_path):
    paths = [write_upload(tmp_path / f"{n}.jsonl", 30, seed=n) for n in range(8)]

    def one(path):
        test = HiddenTest(str(folders[0]), str(folders[1]), str(tmp_path / "ledger"), per_day=3)
        while True:
            try:
                return test.score(path, "Model", "ann").value
            except BadInput as error:
                if "still being read" not in str(error):  # per client, one upload is read while one waits
                    return "you have used all" in str(error)
                time.sleep(0.05)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(one, paths))
    assert sorted(outcomes, key=str) == [50.0] * 3 + [True] * 5
