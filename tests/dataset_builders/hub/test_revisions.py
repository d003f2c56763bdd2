"""Check that a dataset is read at the Hub's current commit, never from a cache or somebody's pull
request.
"""

import json
import random
import uuid
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.build import build
from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import is_released
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.localhub.accounts import READER
from tests.sampling import few


@pytest.fixture
def dataset(api, tmp_path):
    """Publish a dataset under a unique name, so that no other test's copy is in the cache."""
    name = f"ORG/set-{uuid.uuid4().hex[:8]}"
    build("mediconfusion", out=tmp_path / "data", text_only=True)
    publish(tmp_path / "data", name)
    return name


def commit_manifest(api, name, text, **options):
    """Change the manifest in a commit; return the commit."""
    path = api.hf_hub_download(name, "manifest.json", repo_type="dataset")
    manifest = json.loads(Path(path).read_text()) | {"partial": text}
    operation = CommitOperationAdd("manifest.json", json.dumps(manifest).encode())
    return api.create_commit(name, [operation], commit_message=text, repo_type="dataset", **options).oid


HUB_REQUESTS = (
    r"/api/datasets/.*/revision/",
    r"/api/datasets/[^/]+/[^/]+$",
    r"/tree/",
    r"/resolve/",
)
"""Requests that opening a dataset makes."""


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_failing_hub_is_retried_and_cache_never_used(api, dataset, local_hub, seed):
    draw = random.Random(seed)
    repository = open_repository(dataset)
    assert repository.partial is None
    second = commit_manifest(api, dataset, "second")
    status, path = draw.choice([429, 500, 502, 503, 504, 0]), draw.choice(HUB_REQUESTS)
    local_hub.faults.add(path, status, times=draw.randint(1, 3))
    assert open_repository(dataset).partial == "second"
    local_hub.faults.clear()
    third = commit_manifest(api, dataset, "third")

    # Now the Hub fails for good: a cached commit must not be used.
    for pattern in HUB_REQUESTS[:2]:
        local_hub.faults.add(pattern, status, times=1000)

    with pytest.raises(Unavailable):
        open_repository(dataset)

    local_hub.faults.clear()
    assert (open_repository(dataset).revision, open_repository(dataset, second).partial) == (
        third,
        "second",
    )


def test_missing_repository_is_not_unavailable(api, dataset):
    for name, revision in (("ORG/nowhere", None), (dataset, "nowhere"), (dataset, "0" * 40)):
        with pytest.raises(BadInput) as caught:
            open_repository(name, revision)
        assert not isinstance(caught.value, Unavailable)


def test_only_main_and_tags_are_released(api, dataset, local_hub):
    initial = open_repository(dataset).revision
    commit_manifest(api, dataset, "later on main")
    stranger = HfApi(endpoint=local_hub.endpoint, token=READER)

    # Anyone may open a pull request, so its commits are not released.
    proposed = commit_manifest(stranger, dataset, "a stranger's", create_pr=True)
    api.create_branch(dataset, branch="draft", repo_type="dataset")
    draft = commit_manifest(api, dataset, "a draft", revision="draft")
    released = commit_manifest(api, dataset, "released", revision="draft")
    api.create_tag(dataset, tag="v1", revision=released, repo_type="dataset")
    unreleased = commit_manifest(api, dataset, "not yet", revision="draft")
    commits = {
        initial: True,
        proposed: False,
        draft: True,
        released: True,
        unreleased: False,
        "0" * 40: False,
    }
    assert {commit: is_released(dataset, commit) for commit in commits} == commits
    assert open_repository(dataset, proposed).partial == "a stranger's"  # the Hub serves it under the owner's name
