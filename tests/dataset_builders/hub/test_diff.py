"""Test `medprobe diff`: over generated versions of a set it reports exactly the changes, also by
tags on the Hub.
"""

import random
from dataclasses import replace

import pytest
from huggingface_hub import HfApi

from dataset_builders.contents.card import Description
from dataset_builders.contents.repository_files import write_repository
from dataset_builders.errors import BadInput
from dataset_builders.hub.changes import compare_versions, format_changes, open_versions
from dataset_builders.hub.publish import publish
from dataset_builders.schema import Case, CaseImage, Question, SourceContent
from tests import commands
from tests.localhub.accounts import CURATOR
from tests.sampling import few


def make_case(number):
    names = [f"{number:03d}-{side}" for side in (1, 2)]
    return Case(
        f"{number:03d}",
        tuple(CaseImage(name, None) for name in names),
        tuple(
            Question(
                name,
                f"{number:03d}",
                name,
                f"What is {name}?",
                ("this", "that"),
                (side,),
                categories=("Cerebral",),
            )
            for side, name in enumerate(names)
        ),
    )


def write_dataset(folder, cases):
    folder.mkdir(parents=True)
    description = Description("set", "mediconfusion", "custom", None, text_only=True)
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


def test_diff_of_tags_on_the_hub(local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(write_dataset(tmp_path / "one", [make_case(1), make_case(2)]), "ORG/set", tag="v1")
    second_version = write_dataset(tmp_path / "two", [make_case(1), make_case(2), make_case(3)])
    commands.medprobe(
        "publish",
        second_version,
        "ORG/set",
        "--tag",
        "v2",
        "--notes",
        "one pair more",
        cwd=tmp_path,
    )
    [commit, *_] = HfApi(endpoint=local_hub.endpoint, token=CURATOR).list_repo_commits("ORG/set", repo_type="dataset")
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
