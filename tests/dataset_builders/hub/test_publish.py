"""Publishing to a Hub that behaves, that refuses, and that breaks in the middle; a real client against the loopback Hub."""

import json
import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import huggingface_hub.constants
import pytest
from huggingface_hub import HfApi

from dataset_builders.hub.publish import publish
from tests import helpers
from tests.localhub.accounts import CURATOR, READ_ONLY, READER
from tests.localhub.faults import RESET
from tests.localhub.small_repo import picture, small_repo

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


def commits(api, repo_id="ORG/small", repo_type="dataset"):
    return [c.title for c in api.list_repo_commits(repo_id, repo_type=repo_type)]


refused = partial(helpers.refused, publish)


def test_one_commit_and_a_tag(folder, local_hub, api):
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.created and report.committed and report.tagged
    assert commits(api) == ["Publish v1.0.0", "initial commit"]
    held = set(api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")) - {".gitattributes"}
    assert held == {
        "README.md",
        "manifest.json",
        "questions/test-00000-of-00001.parquet",
        "cases/test-00000-of-00001.parquet",
    }
    assert set(report.uploaded) == held
    assert 'load_dataset("ORG/small", revision="v1.0.0")' in str(report)
    assert len(local_hub.record.of("POST", COMMIT)) == 1


def test_the_second_run_sends_nothing(folder, local_hub, api):
    first = publish(folder, "ORG/small", tag="v1.0.0")
    local_hub.record.clear()
    second = publish(folder, "ORG/small", tag="v1.0.0")
    assert (second.commit, second.committed, second.uploaded, second.tagged) == (first.commit, False, (), False)
    assert "nothing uploaded, no commit made" in str(second)
    assert {asked.method for asked in local_hub.record.of()} <= {"GET", "HEAD"}


def test_only_what_changed_is_sent_and_stale_data_goes(folder, api):
    publish(folder, "ORG/small", tag="v1.0.0")
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="LICENSE", repo_id="ORG/small", repo_type="dataset")
    shard = folder / "questions" / "test-00000-of-00001.parquet"
    shard.rename(shard.with_name("test-00000-of-00002.parquet"))
    report = publish(folder, "ORG/small", tag="v1.1.0")
    assert report.uploaded == ("questions/test-00000-of-00002.parquet",)
    assert report.deleted == ("questions/test-00000-of-00001.parquet",)
    held = api.list_repo_files("ORG/small", repo_type="dataset")
    assert "LICENSE" in held and "questions/test-00000-of-00001.parquet" not in held
    old = api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")
    assert "questions/test-00000-of-00001.parquet" in old


def test_a_tag_never_moves(folder, api, local_hub):
    publish(folder, "ORG/small", tag="v1.0.0")
    (folder / "LICENSE").write_text("new")
    local_hub.record.clear()
    assert "v1.0.0 names another version" in refused(folder, "ORG/small", tag="v1.0.0")
    assert not local_hub.record.of("PUT") and not local_hub.record.of("POST", COMMIT)
    assert publish(folder, "ORG/small", tag="v1.0.1").uploaded == ("LICENSE",)
    assert "v1.0.0 names another version" in refused(folder, "ORG/small", tag="v1.0.0")


@pytest.mark.parametrize("tag", ["", "a b", "v1..2", "-v1", "v1.lock", "v~1", "main", "v1/", "a\nb"])
def test_what_is_no_tag_is_said_before_anything_is_sent(folder, local_hub, tag):
    assert "cannot be a tag" in refused(folder, "ORG/small", tag=tag)
    assert not local_hub.record.of()


def test_nothing_slips_out_that_the_card_does_not_name(folder, api):
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
        assert "phantoms" in refused(folder, f"ORG/{name}")
        assert "phantoms" in refused(folder, f"ORG/{name}", private=True)
    (folder / "manifest.json").unlink()
    card = folder / "README.md"
    card.write_text(card.read_text().replace("license: other", "license: other\ntags:\n- phantom"))
    assert "phantoms" in refused(folder, "ORG/mediconfusion"), "the card says so too"
    assert not local_hub.record.of()
    assert publish(folder, "ORG/mediconfusion-phantoms").committed


def test_images_without_a_licence_to_pass_on(tmp_path, local_hub, api):
    folder = small_repo(tmp_path / "mixed", ["CC BY", "unknown", None, "unknown", "CC BY-NC-ND 4.0"])
    line = refused(folder, "ORG/mixed")
    assert "3 of 5 images" in line and "unknown: 2" in line and "none stated: 1" in line and "--private" in line
    assert not local_hub.record.of()
    assert publish(folder, "ORG/mixed", private=True).private
    assert api.repo_info("ORG/mixed", repo_type="dataset").private


def test_an_image_that_only_the_cases_hold_has_no_licence(folder):
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / "cases" / "test-00000-of-00001.parquet"
    table = pa.table({"images": [[{"bytes": picture(9), "path": "x.png"}]], "image_ids": [["hidden"]]})
    pq.write_table(table, path)
    assert "1 of 3 images" in refused(folder, "ORG/small")


def test_hidden_answers_are_never_public(folder, api, local_hub):
    manifest = folder / "manifest.json"
    manifest.write_text(json.dumps({"schema_version": 1, "answers_of": "small", "questions": 2}))
    assert "hidden answers" in refused(folder, "ORG/small-answers")
    manifest.unlink()
    card = folder / "README.md"
    card.write_text(card.read_text().replace("config_name: cases", "config_name: answers"))
    assert "hidden answers" in refused(folder, "ORG/small-answers")
    assert not local_hub.record.of()
    assert publish(folder, "ORG/small-answers", private=True).private


def test_private_images_never_go_to_a_public_repository(tmp_path, api):
    api.create_repo("ORG/mixed", repo_type="dataset")
    folder = small_repo(tmp_path / "mixed", ["unknown"])
    assert "is public" in refused(folder, "ORG/mixed", private=True)
    assert len(commits(api, "ORG/mixed")) == 1


@pytest.mark.parametrize(
    "repo_id", ["small", "a/b/c", "ORG/", "/small", "ORG/a b", "ORG/a--b", "ORG/x.git", "OÄG/x", ""]
)
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
        (READER, "ORG/small", "the account reader has no right"),
        (READ_ONLY, "ORG/small", "the account curator has no right"),
        (CURATOR, "elsewhere/small", "the account curator has no right"),
    ],
)
def test_no_rights(folder, monkeypatch, api, token, repo_id, said):
    monkeypatch.setenv("HF_TOKEN", token)
    assert said in refused(folder, repo_id)
    assert not api.repo_exists(repo_id, repo_type="dataset")


def test_no_rights_to_a_repository_that_is_there(folder, monkeypatch, api):
    api.create_repo("ORG/small", repo_type="dataset")
    monkeypatch.setenv("HF_TOKEN", READER)
    assert "the account reader has no right" in refused(folder, "ORG/small")
    assert len(commits(api)) == 1


def test_somebody_elses_private_repository(folder, monkeypatch, api, local_hub):
    api.create_repo("curator/small", repo_type="dataset", private=True)
    local_hub.hub.accounts.add("hf_colleague", "colleague", ("ORG",))
    monkeypatch.setenv("HF_TOKEN", "hf_colleague")
    assert "the account colleague has no right" in refused(folder, "curator/small")


def test_gated(folder, monkeypatch, api, local_hub):
    publish(folder, "ORG/small")
    local_hub.faults.add("/tree/", 403, code="GatedRepo", message="Access is restricted", times=99)
    assert "is gated and the account curator has no access" in refused(folder, "ORG/small")


def test_offline(folder, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "offline mode" in refused(folder, "ORG/small")


def test_a_hub_that_is_not_there(folder, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "cannot be reached" in refused(folder, "ORG/small")
    monkeypatch.setenv("HF_ENDPOINT", "not a web address")
    assert "HF_ENDPOINT" in refused(folder, "ORG/small")


def test_a_web_server_that_is_no_hub(folder, monkeypatch):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>Welcome</html>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
        assert "does not answer as a Hub does" in refused(folder, "ORG/small")
        server.shutdown()


@pytest.mark.parametrize("status", [409, 412, 429, 500, 503, RESET])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_commit_that_fails_once_is_made_once(folder, api, local_hub, status, after):
    local_hub.faults.add(COMMIT, status, method="POST", after=after)
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.committed
    assert commits(api) == ["Publish v1.0.0", "initial commit"]
    assert local_hub.record.of("POST", COMMIT)[0].status == status


@pytest.mark.parametrize("status", [500, RESET])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_tag_that_fails_once_is_set_once(folder, api, local_hub, status, after):
    local_hub.faults.add("/tag/", status, method="POST", after=after)
    report = publish(folder, "ORG/small", tag="v1.0.0")
    tags = api.list_repo_refs("ORG/small", repo_type="dataset").tags
    assert [(t.name, t.target_commit) for t in tags] == [("v1.0.0", report.commit)]


@pytest.mark.parametrize(
    ("status", "line"), [(500, "the Hub answered 500"), (404, "it has no such address. Check HF_ENDPOINT")]
)
def test_a_hub_that_stays_broken_is_named_in_one_line(folder, api, local_hub, status, line):
    local_hub.faults.add(COMMIT, status, times=99)
    assert line in refused(folder, "ORG/small")
    local_hub.faults.clear()
    local_hub.record.clear()
    report = publish(folder, "ORG/small")
    assert report.committed and not local_hub.record.of("PUT"), "what was uploaded is not sent again"


def test_the_answer_of_a_full_disk_is_passed_on(folder, local_hub):
    local_hub.faults.add("/lfs/objects/batch", 413, message="Storage limit reached", times=99)
    assert "Storage limit reached" in refused(folder, "ORG/small")


def test_many_at_once_make_one_commit(folder, api):
    with ThreadPoolExecutor(6) as pool:
        reports = list(pool.map(lambda _: publish(folder, "ORG/small", tag="v1.0.0"), range(6)))
    assert commits(api) == ["Publish v1.0.0", "initial commit"]
    assert len({report.commit for report in reports}) == 1


CALLS = ("repo_info", "create_repo", "list_repo_tree", "list_repo_refs", "create_commit", "create_tag")


@pytest.mark.parametrize("call", range(9))
@pytest.mark.parametrize("other", ["publishes the same", "publishes without the tag", "adds a file"])
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
            answer = [*answer] if real.__name__ == "list_repo_tree" else answer
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
    assert "is not a folder" in refused(tmp_path / "nowhere", "ORG/x")
    (tmp_path / "empty").mkdir()
    assert "README.md is missing" in refused(tmp_path / "empty", "ORG/x")
    card = folder / "README.md"
    good = card.read_text()
    for text, said in [
        ("# no metadata", "does not begin with YAML metadata"),
        ("---\na: [\n---\n", "does not begin with YAML metadata"),
        ("# late\n" + good, "does not begin with YAML metadata"),
        ("---\nlicense: mit\n---\n", "no `configs`"),
        (good.replace("cases/test-*", "absent/test-*"), "no file fits"),
        (good.replace("cases/test-*", "../*"), "leaves the folder"),
    ]:
        card.write_text(text)
        assert said in refused(folder, "ORG/x")
    card.write_text(good)
    path = folder / "cases" / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-10])
    assert "damaged" in refused(folder, "ORG/x")
    (folder / "manifest.json").write_text("{")
    assert "not a manifest of a dataset" in refused(folder, "ORG/x")
    assert not local_hub.record.of()


def test_a_folder_without_a_manifest_is_published_too(folder, api):
    os.unlink(folder / "manifest.json")  # noqa: PTH108
    assert publish(folder, "ORG/small").committed


def test_a_larger_folder_travels_in_pages(tmp_path, api, local_hub):
    local_hub.hub.page_size = 3
    folder = small_repo(tmp_path / "small")
    assert publish(folder, "ORG/small").committed
    assert not publish(folder, "ORG/small").committed
    assert json.loads((folder / "manifest.json").read_text())["name"] == "small"
