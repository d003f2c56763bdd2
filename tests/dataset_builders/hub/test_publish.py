"""Publishing to a Hub that behaves, that refuses, and that breaks in the middle; a real client against the loopback Hub."""

import json
import socket
from functools import partial

import huggingface_hub.constants
import pytest
from huggingface_hub import HfApi

from dataset_builders.hub.publish import publish
from tests import helpers
from tests.localhub.accounts import CURATOR, READ_ONLY, READER
from tests.localhub.faults import RESET
from tests.localhub.small_repo import small_repo
from tests.sampling import few

COMMIT = "/commit/"


@pytest.fixture(autouse=True)
def on_local_hub(local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)


@pytest.fixture
def folder(tmp_path):
    return small_repo(tmp_path / "small")


@pytest.fixture
def api(local_hub):
    return HfApi(endpoint=local_hub.endpoint, token=CURATOR)


def commits(api, repo_id="ORG/small"):
    return [c.title for c in api.list_repo_commits(repo_id, repo_type="dataset")]


refused = partial(helpers.refused, publish)


def test_one_commit_and_a_tag_and_the_second_run_sends_nothing(folder, local_hub, api):
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.created and report.committed and report.tagged
    assert commits(api) == ["Publish", "initial commit"]
    held = set(api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")) - {".gitattributes"}
    assert held == {
        "README.md",
        "manifest.json",
        "published.json",
        "questions/test-00000-of-00001.parquet",
        "cases/test-00000-of-00001.parquet",
    }
    assert 'load_dataset("ORG/small", revision="v1.0.0")' in str(report)
    local_hub.record.clear()
    second = publish(folder, "ORG/small", tag="v1.0.0")
    assert (second.commit, second.committed, second.tagged) == (report.commit, False, False)
    assert "nothing uploaded, no commit made" in str(second)
    assert not local_hub.record.of("PUT") and not local_hub.record.of("POST", "/(commit|tag)/")


def test_only_what_changed_is_sent_and_stale_data_goes(folder, api, local_hub):
    publish(folder, "ORG/small", tag="v1.0.0")
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="LICENSE", repo_id="ORG/small", repo_type="dataset")
    shard = folder / "questions" / "test-00000-of-00001.parquet"
    shard.rename(shard.with_name("test-00000-of-00002.parquet"))
    (folder / "README.md").write_text((folder / "README.md").read_text() + "More.")
    local_hub.record.clear()
    report = publish(folder, "ORG/small", tag="v1.1.0")
    assert report.deleted == ("questions/test-00000-of-00001.parquet",)
    assert not local_hub.record.of("PUT"), "the bytes of the renamed file are there"
    held = api.list_repo_files("ORG/small", repo_type="dataset")
    assert {"LICENSE", "questions/test-00000-of-00002.parquet"} <= set(held) - set(report.deleted) and not (
        set(report.deleted) & set(held)
    )
    old = api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")
    assert "questions/test-00000-of-00001.parquet" in old


def test_a_tag_never_moves(folder, api, local_hub):
    publish(folder, "ORG/small", tag="v1.0.0")
    [first] = api.list_repo_refs("ORG/small", repo_type="dataset").tags
    (folder / "LICENSE").write_text("new")
    assert "v1.0.0 names another version" in refused(folder, "ORG/small", tag="v1.0.0")
    assert publish(folder, "ORG/small", tag="v1.0.1").tagged
    local_hub.record.clear()
    assert "v1.0.0 names another version" in refused(folder, "ORG/small", tag="v1.0.0")
    assert not local_hub.record.of("PUT") and not local_hub.record.of("POST", COMMIT)
    assert first in api.list_repo_refs("ORG/small", repo_type="dataset").tags


def test_nothing_slips_out_that_no_build_writes(folder, api):
    for name in (".env", "notes.txt", "questions/backup.parquet", "answers/test.parquet", "examples/other.png"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"secret")
    report = publish(folder, "ORG/small")
    held = api.list_repo_files("ORG/small", repo_type="dataset")
    expected = [".env", "answers/test.parquet", "examples/other.png", "notes.txt", "questions/backup.parquet"]
    assert list(report.left_out) == expected
    assert not set(expected) & set(held)


def test_phantoms_do_not_take_an_official_name(tmp_path, local_hub):
    folder = small_repo(tmp_path / "phantoms", origin="phantom")
    for name in ("mediconfusion", "ProbMed", "gmai_mmbench", "halt-medvqa"):
        assert "phantoms" in refused(folder, f"ORG/{name}", private=True)
    assert not local_hub.record.of()
    assert publish(folder, "ORG/mediconfusion-phantoms").committed


def test_images_without_a_licence_to_pass_on(tmp_path, local_hub, api):
    folder = small_repo(tmp_path / "mixed", ["CC BY", "unknown", None, "unknown", "CC BY-NC-ND 4.0"])
    assert "(none stated, unknown). Publish them with --private" in refused(folder, "ORG/mixed")
    assert not local_hub.record.of()
    assert publish(folder, "ORG/mixed", private=True).private
    assert api.repo_info("ORG/mixed", repo_type="dataset").private


def test_hidden_answers_are_never_public(folder, api, local_hub):
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"schema_version": 1, "answers_of": "small", "questions": 2}))
    assert "hidden answers" in refused(folder, "ORG/small-answers")
    assert not local_hub.record.of()
    assert publish(folder, "ORG/small-answers", private=True).private


def test_private_images_never_go_to_a_public_repository(tmp_path, api):
    api.create_repo("ORG/mixed", repo_type="dataset")
    folder = small_repo(tmp_path / "mixed", ["unknown"])
    assert "is public" in refused(folder, "ORG/mixed", private=True)
    assert len(commits(api, "ORG/mixed")) == 1


@pytest.mark.parametrize("repo_id", ["small", "a/b/c", "ORG/", "ORG/a b", "ORG/x.git"])
def test_ids_that_are_none(folder, local_hub, repo_id):
    assert "not a Hub repository id" in refused(folder, repo_id)
    assert not local_hub.record.of()


def test_no_token(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "no Hub token" in refused(folder, "ORG/small")


@pytest.mark.parametrize(
    ("token", "repo_id", "said"),
    [
        ("hf_wrong", "ORG/small", "does not accept the token"),
        (READER, "ORG/small", "the account reader lacks permission"),
        (READ_ONLY, "ORG/small", "the account curator lacks permission"),
        (CURATOR, "elsewhere/small", "the account curator lacks permission"),
    ],
)
def test_no_rights(folder, monkeypatch, api, token, repo_id, said):
    monkeypatch.setenv("HF_TOKEN", token)
    assert said in refused(folder, repo_id)
    assert not api.repo_exists(repo_id, repo_type="dataset")


def test_gated(folder, local_hub):
    publish(folder, "ORG/small")
    local_hub.faults.add("/resolve/", 403, code="GatedRepo", message="Access is restricted", times=99)
    assert "ask for access" in refused(folder, "ORG/small")


def test_offline(folder, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "offline mode" in refused(folder, "ORG/small")


def test_a_hub_that_is_not_there(folder, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "is unreachable" in refused(folder, "ORG/small")
    monkeypatch.setenv("HF_ENDPOINT", "not a web address")
    assert "HF_ENDPOINT" in refused(folder, "ORG/small")


FAULTS = [(COMMIT, status, after) for status in (409, 503, RESET) for after in (False, True)]
FAULTS += [("/tag/", status, after) for status in (503, RESET) for after in (False, True)]


@pytest.mark.parametrize(("at", "status", "after"), few(FAULTS))
def test_a_step_that_fails_once_is_done_once(folder, api, local_hub, at, status, after):
    """Also where only its answer is lost."""
    local_hub.faults.add(at, status, method="POST", after=after)
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.committed and commits(api) == ["Publish", "initial commit"]
    tags = api.list_repo_refs("ORG/small", repo_type="dataset").tags
    assert [(t.name, t.target_commit) for t in tags] == [("v1.0.0", report.commit)]
    assert local_hub.record.of("POST", at)[0].status == status


def test_a_hub_that_stays_broken_is_named_in_one_line(folder, local_hub):
    local_hub.faults.add(COMMIT, 500, times=99)
    assert "the Hub answered 500" in refused(folder, "ORG/small")
    local_hub.faults.clear()
    local_hub.record.clear()
    report = publish(folder, "ORG/small")
    assert report.committed and not local_hub.record.of("PUT"), "what was uploaded is not sent again"
    local_hub.faults.add("/api/datasets", 413, message="Storage limit reached", times=99)
    assert "Storage limit reached" in refused(folder, "ORG/small")


CALLS = ("repo_info", "create_repo", "list_repo_files", "list_repo_refs", "create_commit", "create_tag")
OTHERS = [
    (call, other)
    for call in range(0, 7, 2)
    for other in ("publishes the same", "publishes without the tag", "adds a file")
]


@pytest.mark.parametrize(("call", "other"), few(OTHERS))
def test_another_steps_in_after_any_call(folder, api, monkeypatch, call, other):
    """The tag names a commit with the files, and nothing of anybody's is lost, wherever another client comes in between."""
    made = []

    def step_in():
        if other.startswith("publishes"):
            publish(folder, "ORG/small", tag="v1.0.0" if other == "publishes the same" else None)
        elif api.repo_exists("ORG/small", repo_type="dataset"):
            api.upload_file(path_or_fileobj=b"hi", path_in_repo="NOTES.md", repo_id="ORG/small", repo_type="dataset")

    def watched(real):
        def method(*arguments, **options):
            answer = real(*arguments, **options)
            made.append(real.__name__)
            if len(made) == call + 1:
                step_in()
            return answer

        return method

    for name in CALLS:
        monkeypatch.setattr(HfApi, name, watched(getattr(HfApi, name)))
    publish(folder, "ORG/small", tag="v1.0.0")
    monkeypatch.undo()
    expected = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert expected <= set(api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0"))
    titles = commits(api)
    assert len([title for title in titles if title.startswith("Publish")]) == 1
    if len(titles) > 2:
        assert "NOTES.md" in api.list_repo_files("ORG/small", repo_type="dataset")


def test_folders_that_are_no_dataset(folder, tmp_path, local_hub):
    (tmp_path / "empty").mkdir()
    for nothing in ("nowhere", "empty"):
        assert "is not a dataset repository" in refused(tmp_path / nothing, "ORG/x")
    path = folder / "cases" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    assert "damaged" in refused(folder, "ORG/x")
    (folder / "manifest.json").write_text("{")
    assert "not a manifest of a dataset" in refused(folder, "ORG/x")
    assert not local_hub.record.of()


def test_a_card_that_cannot_be_read_is_named(folder):
    (folder / "README.md").write_text("---\na: [\n---\n")
    assert "the YAML at its top cannot be read" in refused(folder, "ORG/x")
