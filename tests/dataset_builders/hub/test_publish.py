"""Test publishing to a Hub that works, refuses, or fails halfway, and alongside other authors,
whose changes on the Hub stay. A real client asks the loopback Hub.
"""

import json
import random
import socket
from functools import partial

import huggingface_hub.constants
import pytest
from huggingface_hub import HfApi

from dataset_builders.contents.data_files import (
    CARD_FILE,
    check_card_configs,
    config_entries,
)
from dataset_builders.errors import BadInput
from dataset_builders.hub.merge import RECORD_FILE, content_ids, merge_published
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from dataset_builders.images.licences import allows_redistribution
from tests import helpers
from tests.localhub.accounts import CURATOR, READ_ONLY, READER
from tests.localhub.server import RESET
from tests.localhub.small_repo import small_repo
from tests.sampling import few

COMMIT_PATH = "/commit/"

pytestmark = pytest.mark.usefixtures("api")


@pytest.fixture
def folder(tmp_path):
    return small_repo(tmp_path / "small")


def commits(api, repo_id="ORG/small"):
    return [c.title for c in api.list_repo_commits(repo_id, repo_type="dataset")]


publish_error = partial(helpers.refused, publish)


def test_second_publish_sends_nothing(folder, local_hub, api):
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.created and report.committed and report.tagged
    assert commits(api) == ["Publish", "initial commit"]
    paths = set(api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")) - {".gitattributes"}
    assert paths == {
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
    assert not local_hub.record.requests("PUT") and not local_hub.record.requests("POST", "/(commit|tag)/")


def test_only_changes_are_sent_and_stale_data_is_deleted(folder, api, local_hub):
    publish(folder, "ORG/small", tag="v1.0.0")
    api.upload_file(path_or_fileobj=b"kept", path_in_repo="LICENSE", repo_id="ORG/small", repo_type="dataset")
    shard = folder / "questions" / "test-00000-of-00001.parquet"

    # The content is on the Hub already under the old name.
    shard.rename(shard.with_name("test-00000-of-00002.parquet"))
    (folder / "README.md").write_text((folder / "README.md").read_text() + "More.")
    local_hub.record.clear()
    report = publish(folder, "ORG/small", tag="v1.1.0")
    assert report.deleted == ("questions/test-00000-of-00001.parquet",)
    assert not local_hub.record.requests("PUT"), "the bytes of the renamed file are there"
    paths = api.list_repo_files("ORG/small", repo_type="dataset")
    assert {"LICENSE", "questions/test-00000-of-00002.parquet"} <= set(paths) - set(report.deleted) and not (
        set(report.deleted) & set(paths)
    )
    old_paths = api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0")
    assert "questions/test-00000-of-00001.parquet" in old_paths


def test_tag_never_moves(folder, api, local_hub):
    publish(folder, "ORG/small", tag="v1.0.0")
    [original_tag] = api.list_repo_refs("ORG/small", repo_type="dataset").tags
    (folder / "LICENSE").write_text("new")
    assert "v1.0.0 names another version" in publish_error(folder, "ORG/small", tag="v1.0.0")
    assert publish(folder, "ORG/small", tag="v1.0.1").tagged
    local_hub.record.clear()
    assert "v1.0.0 names another version" in publish_error(folder, "ORG/small", tag="v1.0.0")
    assert not local_hub.record.requests("PUT") and not local_hub.record.requests("POST", COMMIT_PATH)
    assert original_tag in api.list_repo_refs("ORG/small", repo_type="dataset").tags


def test_unknown_files_are_not_published(folder, api):
    # Files that no build writes, partly in the folders of configs.
    for name in (
        ".env",
        "notes.txt",
        "questions/backup.parquet",
        "answers/test.parquet",
        "examples/other.png",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"secret")

    report = publish(folder, "ORG/small")
    paths = api.list_repo_files("ORG/small", repo_type="dataset")
    expected = [
        ".env",
        "answers/test.parquet",
        "examples/other.png",
        "notes.txt",
        "questions/backup.parquet",
    ]
    assert list(report.left_out) == expected
    assert not set(expected) & set(paths)


def test_phantoms_cannot_take_an_official_name(tmp_path, local_hub):
    folder = small_repo(tmp_path / "phantoms", origin="phantom")
    for name in ("mediconfusion", "ProbMed", "gmai_mmbench", "halt-medvqa"):
        assert "phantoms" in publish_error(folder, f"ORG/{name}", private=True)
    assert not local_hub.record.requests()
    assert publish(folder, "ORG/mediconfusion-phantoms").committed


def test_images_without_open_licence_need_private(tmp_path, local_hub, api):
    folder = small_repo(tmp_path / "mixed", ["CC BY", "unknown", None, "unknown", "CC BY-NC-ND 4.0"])
    assert "(none stated, unknown). Publish them with --private" in publish_error(folder, "ORG/mixed")
    assert not local_hub.record.requests()
    assert publish(folder, "ORG/mixed", private=True).private
    assert api.repo_info("ORG/mixed", repo_type="dataset").private


def test_hidden_answers_are_never_public(folder, api, local_hub):
    manifest = folder / "manifest.json"

    # This field marks a folder of hidden answers.
    manifest.write_text(json.dumps({"schema_version": 1, "answers_of": "small", "questions": 2}))
    assert "hidden answers" in publish_error(folder, "ORG/small-answers")
    assert not local_hub.record.requests()
    assert publish(folder, "ORG/small-answers", private=True).private


def test_private_images_never_go_to_a_public_repository(tmp_path, api):
    # The repository exists and is public, whatever `private` says.
    api.create_repo("ORG/mixed", repo_type="dataset")
    folder = small_repo(tmp_path / "mixed", ["unknown"])
    assert "is public" in publish_error(folder, "ORG/mixed", private=True)
    assert len(commits(api, "ORG/mixed")) == 1


@pytest.mark.parametrize("repo_id", ["small", "a/b/c", "ORG/", "ORG/a b", "ORG/x.git"])
def test_invalid_repository_id_is_rejected(folder, local_hub, repo_id):
    assert "not a Hub repository id" in publish_error(folder, repo_id)
    assert not local_hub.record.requests()


def test_missing_token_is_reported(folder, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_TOKEN")

    # Neither the environment nor the user's login may provide a token.
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "no Hub token" in publish_error(folder, "ORG/small")


@pytest.mark.parametrize(
    ("token", "repo_id", "words"),
    [
        ("hf_wrong", "ORG/small", "does not accept the token"),
        (READER, "ORG/small", "the account reader lacks permission"),
        (READ_ONLY, "ORG/small", "the account curator lacks permission"),
        (CURATOR, "elsewhere/small", "the account curator lacks permission"),
    ],
)
def test_missing_permission_is_reported(folder, monkeypatch, api, token, repo_id, words):
    monkeypatch.setenv("HF_TOKEN", token)
    assert words in publish_error(folder, repo_id)
    assert not api.repo_exists(repo_id, repo_type="dataset")


def test_hub_that_cannot_be_asked_is_reported(folder, monkeypatch):
    # A bound but not listening port refuses connections.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{free.getsockname()[1]}")
        assert "is unreachable" in publish_error(folder, "ORG/small")
    monkeypatch.setenv("HF_ENDPOINT", "not a web address")
    assert "HF_ENDPOINT" in publish_error(folder, "ORG/small")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "offline mode" in publish_error(folder, "ORG/small")


FAULTS = [(COMMIT_PATH, status, response_lost) for status in (409, 503, RESET) for response_lost in (False, True)]
FAULTS += [("/tag/", status, response_lost) for status in (503, RESET) for response_lost in (False, True)]


@pytest.mark.parametrize(("at", "status", "response_lost"), few(FAULTS))
def test_failed_request_is_retried_without_duplicates(folder, api, local_hub, at, status, response_lost):
    """Also if only the response is lost."""
    local_hub.faults.add(at, status, method="POST", lose_response=response_lost)
    report = publish(folder, "ORG/small", tag="v1.0.0")
    assert report.committed and commits(api) == ["Publish", "initial commit"]
    tags = api.list_repo_refs("ORG/small", repo_type="dataset").tags
    assert [(t.name, t.target_commit) for t in tags] == [("v1.0.0", report.commit)]

    # The fault must have happened, or this test shows nothing.
    assert local_hub.record.requests("POST", at)[0].status == status


def test_persistent_hub_error_is_reported(folder, local_hub):
    publish(small_repo(folder.parent / "gated"), "ORG/gated")
    local_hub.faults.add("/ORG/gated/resolve/", 403, code="GatedRepo", message="Access is restricted", times=99)
    assert "ask for access" in publish_error(folder, "ORG/gated")
    local_hub.faults.add(COMMIT_PATH, 500, times=99)
    assert "the Hub answered 500" in publish_error(folder, "ORG/small")
    local_hub.faults.clear()
    local_hub.record.clear()
    report = publish(folder, "ORG/small")
    assert report.committed and not local_hub.record.requests("PUT"), "what was uploaded is not sent again"
    local_hub.faults.add("/api/datasets", 413, message="Storage limit reached", times=99)
    assert "Storage limit reached" in publish_error(folder, "ORG/small")


HUB_CALLS = (
    "repo_info",
    "create_repo",
    "list_repo_files",
    "list_repo_refs",
    "create_commit",
    "create_tag",
)
INTERLEAVINGS = [
    (call, interference)
    for call in range(0, 7, 2)
    for interference in ("publishes the same", "publishes without the tag", "adds a file")
]


@pytest.mark.parametrize(("call", "interference"), few(INTERLEAVINGS))
def test_concurrent_changes_are_preserved(folder, api, monkeypatch, call, interference):
    """Whenever another client interferes, the tag names a commit with the files and no changes are
    lost.
    """
    calls = []

    def step_in():
        if interference.startswith("publishes"):
            publish(folder, "ORG/small", tag="v1.0.0" if interference == "publishes the same" else None)
        elif api.repo_exists("ORG/small", repo_type="dataset"):
            api.upload_file(path_or_fileobj=b"hi", path_in_repo="NOTES.md", repo_id="ORG/small", repo_type="dataset")

    def watched(real):
        def method(*arguments, **options):
            answer = real(*arguments, **options)
            calls.append(real.__name__)

            # Interfere once, after the chosen call.
            if len(calls) == call + 1:
                step_in()
            return answer

        return method

    for name in HUB_CALLS:
        monkeypatch.setattr(HfApi, name, watched(getattr(HfApi, name)))

    publish(folder, "ORG/small", tag="v1.0.0")
    monkeypatch.undo()
    expected = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert expected <= set(api.list_repo_files("ORG/small", repo_type="dataset", revision="v1.0.0"))
    titles = commits(api)
    assert len([title for title in titles if title.startswith("Publish")]) == 1
    if len(titles) > 2:
        assert "NOTES.md" in api.list_repo_files("ORG/small", repo_type="dataset")


def test_invalid_dataset_folder_is_rejected(folder, tmp_path, local_hub):
    (tmp_path / "empty").mkdir()
    for nothing in ("nowhere", "empty"):
        assert "is not a dataset repository" in publish_error(tmp_path / nothing, "ORG/x")
    path = folder / "cases" / "test-00000-of-00001.parquet"

    # Parquet files end with their index, so a cut one cannot be read.
    path.write_bytes(path.read_bytes()[:-10])
    assert "damaged" in publish_error(folder, "ORG/x")
    (folder / "manifest.json").write_text("{")
    assert "not a manifest of a dataset" in publish_error(folder, "ORG/x")
    assert not local_hub.record.requests()


def test_unreadable_card_is_reported(folder):
    (folder / "README.md").write_text("---\na: [\n---\n")
    assert "the YAML at its top cannot be read" in publish_error(folder, "ORG/x")


# Non-commercial and no-derivatives licences count: they permit passing on an unchanged copy.
OPEN_LICENCES = """CC BY|CC BY-NC|CC BY-NC-SA|CC BY-NC-ND|CC BY-SA 4.0|cc-by-4.0|cc-by-nc-nd-4.0|CC BY 3.0 US|CC_BY_4.0|CC0|CC0 1.0|
CC0 1.0 Universal|CC0-1.0|Public Domain|PDDL-1.0|ODC-BY|MIT|Apache-2.0|Creative Commons Attribution 4.0 International License|
https://creativecommons.org/licenses/by-nc/4.0/|http://creativecommons.org/licenses/by-nc-nd/3.0/us/legalcode|
https://creativecommons.org/publicdomain/zero/1.0/|https://creativecommons.org/publicdomain/mark/1.0/""".replace(
    "\n", ""
).split("|")

# Texts that only resemble an open licence, or that restrict one.
RESTRICTED_LICENCES = """unknown|none|n/a|CC|CC BY?|not CC BY|CC BY or all rights reserved|all rights reserved|proprietary|
NC|BY|by 4.0|CC NC|
CC BY 9.0|CC BY-ND-SA|CC BY-SA-ND|research use only|other|see paper|http://example.org/licenses/by/4.0|
https://creativecommons.org.example.org/licenses/by/4.0/|CC BY 4.0 for the text only""".replace("\n", "").split("|")


def test_redistribution_follows_the_licence():
    for licence in OPEN_LICENCES:
        assert allows_redistribution(licence) and allows_redistribution(f"  {licence.upper()} "), licence
    for licence in (*RESTRICTED_LICENCES, "", " ", None, 4, float("nan")):
        assert not allows_redistribution(licence), licence


DATA_PATHS = [f"{config}/test-{n:05d}-of-00002.parquet" for config in ("questions", "cases") for n in range(2)]
OUR_PATHS = [*DATA_PATHS, "manifest.json", "LICENSE.md"]
OTHER_PATHS = [
    *OUR_PATHS,
    "questions/test-more.parquet",
    "NOTES.md",
    "own/train-00000-of-00001.parquet",
]


def apply_publish(stored, files):
    """Return the repository's files after a publish, with ids as on the Hub: Parquet in LFS, the
    rest in git.
    """
    ids = {path: content_ids(content)[0 if path.endswith(".parquet") else -1] for path, content in stored.items()}
    result = stored | merge_published("ORG/x", files, ids, stored.__getitem__).write
    return {path: content for path, content in result.items() if content is not None}


def random_folder(rng):
    chosen = [DATA_PATHS[0], *(path for path in OUR_PATHS[1:] if rng.random() < 0.8)]
    return {path: rng.choice([b"1", b"2"]) for path in chosen} | {CARD_FILE: rng.choice([b"# a\n", b"# b\n"])}


@pytest.mark.parametrize("seed", few(range(8), 2))
def test_merge_preserves_foreign_changes(seed):
    for number in range(50):
        check_random_history(random.Random(f"{seed} {number}"))


def check_random_history(rng):
    files = random_folder(rng)

    # Alternate random edits on the Hub with random publishes.
    stored = published = apply_publish({}, files)
    for _ in range(4):
        edits = {path: rng.choice([b"theirs", None]) for path in rng.sample(OTHER_PATHS, rng.randrange(3))}
        if edits_card := rng.random() < 0.4:
            edits[CARD_FILE] = stored[CARD_FILE] + b"theirs\n"
        stored = {path: content for path, content in (stored | edits).items() if content is not None}
        files = rng.choice([files, random_folder(rng)])
        changed = {path for path in OTHER_PATHS if stored.get(path) not in (published.get(path), files.get(path))}
        try:
            result = apply_publish(stored, files)
        except BadInput as refused:
            # A refusal must name a file that somebody changed.
            assert any(path in str(refused) for path in changed)
            return
        assert apply_publish(result, files) == result, "a second publish changes nothing"
        for path in OTHER_PATHS:
            if path in changed:
                assert result.get(path) in (stored[path],) if path in stored else (None, files.get(path)), path
            else:
                assert result.get(path) == files.get(path), path
        rows = {path: content_ids(content)[0] for path, content in result.items() if path.endswith(".parquet")}
        loaded = {path for path in rows if path.startswith(("questions/test-", "cases/test-"))}
        assert loaded <= files.keys() | changed & set(DATA_PATHS), "no rows of others among ours"
        our_rows = {path: digest for path, digest in rows.items() if not path.startswith("own/")}
        check_card_configs(result[CARD_FILE].decode(), config_entries(our_rows), CARD_FILE, "")

        # The body of an edited card must survive.
        edited = edits_card or b"theirs" in stored[CARD_FILE]
        assert result[CARD_FILE].endswith(stored[CARD_FILE].split(b"---\n")[-1] if edited else files[CARD_FILE])
        published = result | {path: published.get(path) for path in changed if result.get(path) == stored.get(path)}
        stored = result


def test_edits_on_the_hub_are_preserved(publishable, api):
    options = {"repo_id": "ORG/probmed", "repo_type": "dataset"}
    publish(publishable / "probmed", "ORG/probmed", private=True)

    # Edit the card as an author would in the web interface.
    card = open_repository("ORG/probmed").folder / CARD_FILE
    info = (
        "dataset_info:\n- {config_name: questions, features: [{name: old, dtype: string}]}\n- {config_name: theirs}\n"
    )
    edited = card.read_text().replace("# ProbMed", "# Theirs").replace("configs:\n", info + "configs:\n", 1)
    edited += "A colleague's line.\n"
    api.upload_file(path_or_fileobj=edited.encode(), path_in_repo=CARD_FILE, **options)
    stolen = publishable / "halt-medvqa" / "questions_text" / "test-00000-of-00001.parquet"
    api.upload_file(path_or_fileobj=stolen, path_in_repo="questions_text/test-00000-of-00001.parquet", **options)
    with pytest.raises(BadInput, match="does not match the files of questions_text"):
        open_repository("ORG/probmed")

    again = publish(publishable / "probmed", "ORG/probmed", private=True)
    assert again.preserved == (
        "questions_text/test-00000-of-00001.parquet",
        f"{CARD_FILE} (but for its list of configs)",
    )
    assert "preserved" in str(again)
    opened = open_repository("ORG/probmed")
    text = (opened.folder / CARD_FILE).read_text()
    assert "# Theirs" in text and "A colleague's line." in text

    # `push_to_hub` leaves old columns there (datasets#8608), and then our files would not load.
    assert "dtype: string" not in text and "config_name: theirs" in text
    assert not publish(publishable / "probmed", "ORG/probmed", private=True).committed
    api.upload_file(path_or_fileobj=stolen, path_in_repo="cases/test-more.parquet", **options)
    with pytest.raises(BadInput, match=r"nothing was published.* cases/test-more.parquet"):
        publish(publishable / "probmed", "ORG/probmed", private=True)

    assert RECORD_FILE in api.list_repo_files("ORG/probmed", repo_type="dataset")
