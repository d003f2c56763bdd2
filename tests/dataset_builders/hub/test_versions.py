"""Test versions of a set: `medprobe diff` reports exactly the changes, also by tags on the Hub, and
removing a case changes few bytes. A dataset is read at the Hub's current commit, never from a cache
or somebody's pull request.
"""

import json
import random
import re
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from huggingface_hub import CommitOperationAdd, HfApi
from PIL import Image

from dataset_builders.build import build
from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.hub.client import is_released
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import compare_versions, format_changes, open_repository
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import Case, CaseImage, Question, SourceContent
from tests import commands
from tests.localhub.accounts import READER
from tests.sampling import few


def make_case(number, image=None):
    """Make a case of two questions on two images; `image` is the content of both."""
    names = [f"{number:03d}-{side}" for side in (1, 2)]
    read = None if image is None else lambda: image
    questions = [
        Question(name, f"{number:03d}", name, f"What is {name}?", ("this", "that"), (side,), categories=("Cerebral",))
        for side, name in enumerate(names)
    ]
    images = [CaseImage(name, read, len(image or b""), f"{name}.png", "CC0-1.0") for name in names]
    return Case(f"{number:03d}", tuple(images), tuple(questions))


def write_dataset(folder, cases, text_only=True):
    folder.mkdir(parents=True)
    description = Description("set", "mediconfusion", "custom", None, text_only)
    write_repository(folder, description, SourceContent({"test": cases}))
    return folder


@pytest.mark.parametrize("seed", few(range(3), 2))
def test_diff_reports_exactly_the_changes(tmp_path, seed):
    rng = random.Random(seed)
    old_cases = [make_case(number) for number in range(12)]
    numbers = rng.sample(range(12), 6)

    # Disjoint slices, so that each case changes in one way.
    removed_numbers, edited_numbers, relabelled_numbers = (
        numbers[: rng.randint(0, 2)],
        numbers[2 : 2 + rng.randint(0, 2)],
        numbers[4 : 4 + rng.randint(0, 2)],
    )
    added_cases = [make_case(number) for number in range(100, 100 + rng.randint(0, 2))]
    new_cases = [old_case for number, old_case in enumerate(old_cases) if number not in removed_numbers]
    expected = {}
    for number in edited_numbers:
        first_question, second_question = old_cases[number].questions
        column, value = rng.choice([("question", "Why?"), ("options", ("that", "this")), ("answer", (1,))])
        new_cases[new_cases.index(old_cases[number])] = replace(
            old_cases[number],
            questions=(replace(first_question, **{column: value}), second_question),
        )
        expected[first_question.question_id] = column

    for number in relabelled_numbers:
        first_question, second_question = old_cases[number].questions

        # Labels do not affect scores.
        changed = replace(second_question, categories=("Spinal",))
        new_cases[new_cases.index(old_cases[number])] = replace(old_cases[number], questions=(first_question, changed))
        expected[second_question.question_id] = "categories"

    rng.shuffle(new_cases)  # a different order is not a change
    new_cases += added_cases
    old_folder, new_folder = (
        write_dataset(tmp_path / "old", old_cases),
        write_dataset(tmp_path / "new", new_cases),
    )
    [changes] = compare_versions(str(old_folder), str(new_folder))
    assert set(changes.added) == {q.question_id for old_case in added_cases for q in old_case.questions}
    assert set(changes.removed) == {q.question_id for n in removed_numbers for q in old_cases[n].questions}
    assert {name: next(iter(columns)) for name, columns in changes.changed.items()} == expected
    assert all(len(columns) == 1 for columns in changes.changed.values())
    assert changes.scored == bool(added_cases or removed_numbers or edited_numbers)
    assert bool(changes) == bool(added_cases or removed_numbers or edited_numbers or relabelled_numbers)
    assert ("not comparable" in format_changes([changes])) == changes.scored


def test_diff_of_tags_on_the_hub(api, tmp_path):
    publish(write_dataset(tmp_path / "one", [make_case(1), make_case(2)]), "ORG/set", tag="v1")
    second_version = write_dataset(tmp_path / "two", [make_case(1), make_case(2), make_case(3)])
    commands.medprobe("publish", second_version, "ORG/set", "--tag", "v2", "--notes", "one pair more", cwd=tmp_path)
    [commit, *_] = api.list_repo_commits("ORG/set", repo_type="dataset")
    assert "one pair more" in commit.message
    output = commands.medprobe("diff", "ORG/set@v1", "@v2", cwd=tmp_path).stdout
    assert "added: 2 (003-1, 003-2)" in output and "not comparable" in output
    assert "No change" in format_changes(compare_versions("ORG/set@v2", str(second_version)))
    for old_version, new_version in (
        ("ORG/set@v1", "@v9"),
        ("@v1", "@v2"),
        ("ORG/set@", "@v2"),
        ("nowhere", "@v2"),
    ):
        with pytest.raises(BadInput):
            compare_versions(old_version, new_version)

    with pytest.raises(BadInput, match="--tag"):
        publish(second_version, "ORG/set", notes="x")


def content_chunks(folder, cases):
    """Split the bytes of the Parquet files at certain pairs of bytes, as content-defined chunking
    does.
    """
    write_dataset(folder, cases, text_only=False)
    paths = sorted(folder.rglob("*.parquet"))
    columns = [pq.read_metadata(path).row_group(0).column(0) for path in paths]
    assert all(column.has_offset_index and column.has_column_index for column in columns), "readers find single pages"
    return re.split(rb"(?<=\x07[\x00-\x3f])", b"".join(path.read_bytes() for path in paths))


def test_removing_a_case_changes_few_bytes(tmp_path):
    rng = random.Random(1)
    pictures = [encode_png(Image.frombytes("L", (120, 120), rng.randbytes(120 * 120))) for _ in range(80)]
    cases = [make_case(number, picture) for number, picture in enumerate(pictures)]
    old_chunks = set(content_chunks(tmp_path / "first", cases))
    new_chunks = content_chunks(tmp_path / "second", cases[:30] + cases[31:])
    assert sum(len(chunk) for chunk in new_chunks if chunk not in old_chunks) < 0.05 * sum(map(len, new_chunks))


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
