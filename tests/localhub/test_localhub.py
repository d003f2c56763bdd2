"""The loopback Hub against the real client: what tests of publishing and submitting lean on must itself hold."""

import os
import re
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import get_session

from tests.localhub.accounts import CURATOR, READ_ONLY, READER, STRANGER
from tests.localhub.storage.history import git_sha1
from tests.localhub.storage.xet import ungroup

ROOT = Path(__file__).resolve().parents[2]
DATASET = {"repo_id": "ORG/x", "repo_type": "dataset"}


@pytest.fixture
def api(local_hub):
    made = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    made.create_repo(**DATASET)
    return made


@pytest.fixture
def reader(local_hub):
    return HfApi(endpoint=local_hub.endpoint, token=READER)


def add(api, path, content, **options):
    operations = [CommitOperationAdd(path, content)]
    return api.create_commit(operations=operations, commit_message=f"Add {path}", **DATASET, **options)


def read(api, path, revision="main"):
    session, url = get_session(), f"{api.endpoint}/datasets/ORG/x/resolve/{revision.replace('/', '%2F')}/{path}"
    return session.get(url, headers={"Authorization": f"Bearer {api.token}"})


def test_files_small_and_large_come_back_whole(api):
    large, small = os.urandom(1_000_000), b"small\n"
    add(api, "a/large.bin", large)
    add(api, "a/small.txt", small)
    assert (read(api, "a/large.bin").content, read(api, "a/small.txt").content) == (large, small)
    entries = {entry.path: entry for entry in api.list_repo_tree(**DATASET, recursive=True, expand=True)}
    assert entries["a/small.txt"].blob_id == git_sha1(small)
    assert entries["a/large.bin"].lfs.size == 1_000_000
    assert entries["a/small.txt"].last_commit.title == "Add a/small.txt"
    assert entries["a"].tree_id


@pytest.mark.parametrize(
    ("wanted", "status", "slice_"),
    [
        ("bytes=0-9", 206, slice(0, 10)),
        ("bytes=90-", 206, slice(90, 100)),
        ("bytes=-5", 206, slice(95, 100)),
        ("bytes=95-500", 206, slice(95, 100)),
        ("bytes=100-", 416, None),
        ("bytes=9-3", 416, None),
    ],
)
def test_ranges(api, wanted, status, slice_):
    content = bytes(range(100))
    add(api, "x.bin", content)
    answer = get_session().get(f"{api.endpoint}/datasets/ORG/x/resolve/main/x.bin", headers={"Range": wanted})
    assert answer.status_code == status
    if slice_:
        assert answer.content == content[slice_]
        assert answer.headers["Content-Range"] == f"bytes {slice_.start}-{slice_.stop - 1}/100"


def test_errors_are_the_clients_own(api, reader, local_hub):
    with pytest.raises(EntryNotFoundError):
        api.hf_hub_download(filename="absent.txt", **DATASET)
    with pytest.raises(RevisionNotFoundError):
        api.repo_info(revision="absent", **DATASET)
    with pytest.raises(RepositoryNotFoundError):
        api.repo_info("ORG/absent", repo_type="dataset")
    with pytest.raises(HfHubHTTPError, match="409"):
        api.create_branch(branch="main", **DATASET)
    with pytest.raises(HfHubHTTPError, match="403"):
        add(reader, "x.txt", b"x")
    with pytest.raises(HfHubHTTPError, match="403"):
        add(HfApi(endpoint=local_hub.endpoint, token=READ_ONLY), "x.txt", b"x")
    with pytest.raises(HfHubHTTPError, match="Invalid user token"):
        HfApi(endpoint=local_hub.endpoint, token="hf_wrong").whoami()
    with pytest.raises(EntryNotFoundError):
        api.create_commit(operations=[CommitOperationDelete("absent")], commit_message="x", **DATASET)


def test_a_stale_parent_is_refused(api):
    first = add(api, "a.txt", b"1")
    add(api, "a.txt", b"2")
    with pytest.raises(HfHubHTTPError, match="412"):
        add(api, "a.txt", b"3", parent_commit=first.oid)
    assert read(api, "a.txt").content == b"2"


def test_a_pull_request_from_proposal_to_merge(api, reader):
    add(api, "kept.txt", b"kept\n")
    opened = add(reader, "results/new.txt", b"new\n", create_pr=True)
    assert re.fullmatch(r".*/datasets/ORG/x/discussions/1", opened.pr_url)
    assert read(api, "results/new.txt").status_code == 404
    assert read(api, "results/new.txt", "refs/pr/1").content == b"new\n"
    reader.comment_discussion(discussion_num=1, comment="please", **DATASET)
    details = api.get_discussion_details(discussion_num=1, **DATASET)
    assert (details.status, details.author, details.is_pull_request) == ("open", "reader", True)
    with pytest.raises(HfHubHTTPError, match="403"):
        reader.merge_pull_request(discussion_num=1, **DATASET)
    api.merge_pull_request(discussion_num=1, comment="thanks", **DATASET)
    assert read(api, "results/new.txt").content == b"new\n" and read(api, "kept.txt").content == b"kept\n"
    details = api.get_discussion_details(discussion_num=1, **DATASET)
    assert details.status == "merged" and details.merge_commit_oid == api.repo_info(**DATASET).sha
    assert [event.type for event in details.events] == ["commit", "comment", "comment", "status-change"]


def test_the_author_may_push_again_and_others_not(api, reader, local_hub):
    add(reader, "a.txt", b"1", create_pr=True)
    add(reader, "a.txt", b"2", revision="refs/pr/1")
    with pytest.raises(HfHubHTTPError, match="403"):
        add(HfApi(endpoint=local_hub.endpoint, token=STRANGER), "a.txt", b"3", revision="refs/pr/1")
    assert read(api, "a.txt", "refs/pr/1").content == b"2"
    reader.change_discussion_status(discussion_num=1, new_status="closed", **DATASET)
    with pytest.raises(HfHubHTTPError, match="409"):
        api.merge_pull_request(discussion_num=1, **DATASET)


def test_both_sides_changed_is_a_conflict(api, reader):
    add(api, "a.txt", b"0")
    add(reader, "a.txt", b"theirs", create_pr=True)
    add(api, "a.txt", b"ours")
    assert api.get_discussion_details(discussion_num=1, **DATASET).conflicting_files == ["a.txt"]
    with pytest.raises(HfHubHTTPError, match="409"):
        api.merge_pull_request(discussion_num=1, **DATASET)
    assert read(api, "a.txt").content == b"ours"


def test_bytes_grouped_by_four_are_put_back():
    plain = bytes(range(23))
    grouped = b"".join(plain[first::4] for first in range(4))
    assert ungroup(grouped) == plain
