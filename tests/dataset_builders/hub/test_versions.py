"""Test versions of a set: `medprobe diff` reports exactly the changes, also by tags on the Hub, and
removing a case changes few bytes.
"""

import random
import re
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.errors import BadInput
from dataset_builders.hub.publish import publish
from dataset_builders.hub.repository import compare_versions, format_changes, open_versions
from dataset_builders.images.lookup import encode_png
from dataset_builders.schema import Case, CaseImage, Question, SourceContent
from tests import commands
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
    [changes] = compare_versions(*open_versions(str(old_folder), str(new_folder)))
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
    assert "No change" in format_changes(compare_versions(*open_versions("ORG/set@v2", str(second_version))))
    for old_version, new_version in (
        ("ORG/set@v1", "@v9"),
        ("@v1", "@v2"),
        ("ORG/set@", "@v2"),
        ("nowhere", "@v2"),
    ):
        with pytest.raises(BadInput):
            open_versions(old_version, new_version)

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
