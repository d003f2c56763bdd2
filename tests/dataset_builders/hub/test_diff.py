"""`medprobe diff`: over generated versions of a set, exactly what was done to it is said; on the Hub by tags."""

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


def case(number):
    names = [f"{number:03d}-{side}" for side in (1, 2)]
    return Case(
        f"{number:03d}",
        tuple(CaseImage(name, None) for name in names),
        tuple(
            Question(
                name, f"{number:03d}", name, f"What is {name}?", ("this", "that"), (side,), categories=("Cerebral",)
            )
            for side, name in enumerate(names)
        ),
    )


def write(folder, cases):
    folder.mkdir(parents=True)
    description = Description("set", "mediconfusion", "custom", None, text_only=True)
    write_repository(folder, description, SourceContent({"test": cases}))
    return folder


@pytest.mark.parametrize("seed", few(range(3), 2))
def test_exactly_what_was_done_is_said(tmp_path, seed):
    rng = random.Random(seed)
    before = [case(number) for number in range(12)]
    drawn = rng.sample(range(12), 6)
    gone, edited, labelled = (
        drawn[: rng.randint(0, 2)],
        drawn[2 : 2 + rng.randint(0, 2)],
        drawn[4 : 4 + rng.randint(0, 2)],
    )
    new = [case(number) for number in range(100, 100 + rng.randint(0, 2))]
    after = [each for number, each in enumerate(before) if number not in gone]
    expected = {}
    for number in edited:
        first, second = before[number].questions
        column, value = rng.choice([("question", "Why?"), ("options", ("that", "this")), ("answer", (1,))])
        after[after.index(before[number])] = replace(
            before[number], questions=(replace(first, **{column: value}), second)
        )
        expected[first.question_id] = column
    for number in labelled:
        first, second = before[number].questions
        changed = replace(second, categories=("Spinal",))
        after[after.index(before[number])] = replace(before[number], questions=(first, changed))
        expected[second.question_id] = "categories"
    rng.shuffle(after)  # another order is no change
    after += new
    old, now = write(tmp_path / "old", before), write(tmp_path / "new", after)
    [found] = compare_versions(*open_versions(str(old), str(now)))
    assert set(found.added) == {q.question_id for each in new for q in each.questions}
    assert set(found.removed) == {q.question_id for n in gone for q in before[n].questions}
    assert {name: next(iter(columns)) for name, columns in found.changed.items()} == expected
    assert all(len(columns) == 1 for columns in found.changed.values())
    assert found.scored == bool(new or gone or edited)
    assert bool(found) == bool(new or gone or edited or labelled)
    assert ("not comparable" in format_changes([found])) == found.scored


def test_by_tags_on_the_hub(local_hub, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(write(tmp_path / "one", [case(1), case(2)]), "ORG/set", tag="v1")
    two = write(tmp_path / "two", [case(1), case(2), case(3)])
    commands.medprobe("publish", two, "ORG/set", "--tag", "v2", "--notes", "one pair more", cwd=tmp_path)
    [made, *_] = HfApi(endpoint=local_hub.endpoint, token=CURATOR).list_repo_commits("ORG/set", repo_type="dataset")
    assert "one pair more" in made.message
    said = commands.medprobe("diff", "ORG/set@v1", "@v2", cwd=tmp_path).stdout
    assert "added: 2 (003-1, 003-2)" in said and "not comparable" in said
    assert "No change" in format_changes(compare_versions(*open_versions("ORG/set@v2", str(two))))
    for before, after in (("ORG/set@v1", "@v9"), ("@v1", "@v2"), ("ORG/set@", "@v2"), ("nowhere", "@v2")):
        with pytest.raises(BadInput):
            open_versions(before, after)
    with pytest.raises(BadInput, match="--tag"):
        publish(two, "ORG/set", notes="x")
