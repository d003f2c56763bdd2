"""A dataset on the Hub is read as it is in the commit that the Hub names now: no cache answers for it, nor a pull request for its owner."""

import json
import random
import uuid
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from dataset_builders.build import build
from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.commits import is_released
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import open_repository
from tests.localhub.accounts import CURATOR, READER
from tests.sampling import few


@pytest.fixture
def curator(local_hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    return HfApi(endpoint=local_hub.endpoint, token=CURATOR)


@pytest.fixture
def dataset(curator, tmp_path):
    """A published dataset with a name of its own, so that no other test's copy is in the cache."""
    name = f"ORG/set-{uuid.uuid4().hex[:8]}"
    build("mediconfusion", out=tmp_path / "data", text_only=True)
    publish(tmp_path / "data", name)
    return name


def new_note(api, name, text, **options):
    """Change the manifest by a commit; returns the commit."""
    path = api.hf_hub_download(name, "manifest.json", repo_type="dataset")
    manifest = json.loads(Path(path).read_text()) | {"partial": text}
    operation = CommitOperationAdd("manifest.json", json.dumps(manifest).encode())
    return api.create_commit(name, [operation], commit_message=text, repo_type="dataset", **options).oid


ASKED = (r"/api/datasets/.*/revision/", r"/api/datasets/[^/]+/[^/]+$", r"/tree/", r"/resolve/")
"""What opening a dataset asks of the Hub."""


@pytest.mark.parametrize("seed", few(range(6), 2))
def test_a_hub_in_trouble_is_asked_again_and_never_answered_for_by_the_cache(curator, dataset, local_hub, seed):
    draw = random.Random(seed)
    first = open_repository(dataset)
    assert first.partial is None
    second = new_note(curator, dataset, "second")
    status, path = draw.choice([429, 500, 502, 503, 504, 0]), draw.choice(ASKED)
    local_hub.faults.add(path, status, times=draw.randint(1, 3))
    assert open_repository(dataset).partial == "second"
    local_hub.faults.clear()
    third = new_note(curator, dataset, "third")
    for pattern in ASKED[:2]:
        local_hub.faults.add(pattern, status, times=1000)
    with pytest.raises(Unavailable):
        open_repository(dataset)
    local_hub.faults.clear()
    assert (open_repository(dataset).revision, open_repository(dataset, second).partial) == (third, "second")


def test_what_is_not_there_is_no_trouble(curator, dataset):
    for name, revision in (("ORG/nowhere", None), (dataset, "nowhere"), (dataset, "0" * 40)):
        with pytest.raises(BadInput) as caught:
            open_repository(name, revision)
        assert not isinstance(caught.value, Unavailable)


def test_only_main_and_tags_are_the_owners_word(curator, dataset, local_hub):
    first = open_repository(dataset).revision
    new_note(curator, dataset, "later on main")
    stranger = HfApi(endpoint=local_hub.endpoint, token=READER)
    theirs = new_note(stranger, dataset, "a stranger's", create_pr=True)
    curator.create_branch(dataset, branch="draft", repo_type="dataset")
    draft = new_note(curator, dataset, "a draft", revision="draft")
    released = new_note(curator, dataset, "released", revision="draft")
    curator.create_tag(dataset, tag="v1", revision=released, repo_type="dataset")
    unreleased = new_note(curator, dataset, "not yet", revision="draft")
    commits = {first: True, theirs: False, draft: True, released: True, unreleased: False, "0" * 40: False}
    assert {commit: is_released(dataset, commit) for commit in commits} == commits
    assert open_repository(dataset, theirs).partial == "a stranger's"  # the Hub serves it under the owner's name
