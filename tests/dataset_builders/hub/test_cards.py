"""Check the card and eval.yaml of every built repository against the Hub's specification.

tests/eval_harness/interop/test_real_harnesses.py runs inspect-ai itself and compares its score with
ours.
"""

import base64
import re
import shutil

import pytest
import yaml
from datasets import load_dataset
from huggingface_hub import DatasetCard

from dataset_builders.benchmarks import BENCHMARKS, spec
from dataset_builders.build import build
from dataset_builders.contents.card import parse_task_metric
from dataset_builders.hub.publish import select_dataset_files
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import COMMON_COLUMNS, LETTERS
from eval_harness.benchmarks import eval_spec

SOLVERS = {
    *(
        "prompt_template",
        "system_message",
        "user_message",
        "chain_of_thought",
        "use_tools",
        "generate",
    ),
    *("self_critique", "multiple_choice"),
}
SCORERS = {
    *("includes", "match", "pattern", "answer", "exact", "f1"),
    *("model_graded_qa", "model_graded_fact", "choice", "math"),
}
TASK_FIELDS = {
    "id",
    "config",
    "split",
    "field_spec",
    "shuffle_choices",
    "epochs",
    "epoch_reducer",
    "solvers",
    "scorers",
}
SPEC_FIELDS = {"input", "target", "choices", "input_image", "metadata"}


@pytest.fixture(scope="module")
def text_only(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    build("mediconfusion", out=folder / "mediconfusion", text_only=True, eval_yaml=True)
    return folder


def check_specification(document: dict, configs: dict[str, list[str]]) -> None:
    """Check the fields that the Hub documents and inspect-ai 0.3.285 accepts (it refuses extra
    keys).
    """
    assert set(document) == {"name", "description", "evaluation_framework", "tasks"}
    assert document["evaluation_framework"] == "inspect-ai"
    assert all(isinstance(document[key], str) and document[key] for key in ("name", "description"))
    ids = [task["id"] for task in document["tasks"]]
    assert ids and len(set(ids)) == len(ids)
    for task in document["tasks"]:
        assert set(task) <= TASK_FIELDS
        assert task["split"] in configs[task["config"]]
        assert set(task["field_spec"]) <= SPEC_FIELDS and {"input", "target", "choices"} <= set(task["field_spec"])
        for key, allowed in (("solvers", SOLVERS), ("scorers", SCORERS)):
            assert task[key] and all(
                set(component) <= {"name", "args"} and component["name"] in allowed for component in task[key]
            )


@pytest.mark.parametrize(
    ("kind", "family"),
    [("text_only", "mediconfusion"), *(("phantoms", family) for family in BENCHMARKS)],
)
def test_tasks_follow_the_specification(request, family, kind):
    folder = request.getfixturevalue(kind) / family
    document = yaml.safe_load((folder / "eval.yaml").read_text())
    card = yaml.safe_load((folder / "README.md").read_text().split("---")[1])
    configs = {config["config_name"]: [entry["split"] for entry in config["data_files"]] for config in card["configs"]}
    check_specification(document, configs)

    # A publish must not leave the file out.
    assert "eval.yaml" in select_dataset_files(folder, "ORG/some-phantoms", private=False)[0]
    for task in document["tasks"]:
        assert ("input_image" in task["field_spec"]) == (kind == "phantoms")
        metric = parse_task_metric(task["id"], task["split"])
        assert metric in spec(family).tasks and metric in eval_spec(family).metrics

    # Splits with answers; without them, a task could not be scored.
    keyed = {
        split
        for split in open_repository(folder).splits
        if open_repository(folder).questions(split)["answer"].map(len).any()
    }
    assert {task["split"] for task in document["tasks"]} == keyed


@pytest.mark.parametrize("family", BENCHMARKS)
def test_task_rows_match_the_questions(phantoms, family, tmp_path):
    folder = phantoms / family
    repository = open_repository(folder)
    for task in yaml.safe_load((folder / "eval.yaml").read_text())["tasks"]:
        rows = load_dataset(str(folder), task["config"], split=task["split"], cache_dir=str(tmp_path))
        questions = repository.questions(task["split"]).set_index("question_id")
        images = {name: data for case in repository.cases(task["split"]) for name, data in case.images.items()}
        assert len(rows) and len(set(rows["question_id"])) == len(rows)
        for row in rows:
            question = questions.loc[row["question_id"]]
            assert [row["question"], row["options"]] == [
                question["question"],
                list(question["options"]),
            ]
            assert row["target"] == "".join(LETTERS[index] for index in question["answer"])
            kind, _, encoded = row["image_uri"].partition(";base64,")
            assert kind in ("data:image/png", "data:image/jpeg")
            assert base64.b64decode(encoded) == images[row["image_id"]]


def test_without_tasks_no_task_files_are_written(phantoms, tmp_path):
    build("mediconfusion", out=tmp_path / "plain")
    names, less = (
        {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
        for folder in (phantoms / "mediconfusion", tmp_path / "plain")
    )
    assert names - less == {"eval.yaml", "inspect"}
    assert "inspect" not in (tmp_path / "plain/README.md").read_text()
    assert load_dataset(str(tmp_path / "plain"), cache_dir=str(tmp_path / "cache"))["test"].num_rows == 28


LICENSE_NAME, LICENSE_LINK = r"[a-z0-9.-]+", r"LICENSE(\.md)?|https?://\S+"
"""Accepted by the Hub (see its reference of repository cards)."""


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_cards_are_valid_and_explain_every_column(benchmark, publishable):
    card = DatasetCard.load(publishable / benchmark / "README.md")
    assert re.fullmatch(LICENSE_NAME, card.data.license_name) and re.fullmatch(LICENSE_LINK, card.data.license_link)
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|", card.text, re.M)
    explained = {name: meaning.strip() for name, meaning in rows}
    assert all(explained.values()) and explained["case_id"] == COMMON_COLUMNS["case_id"].meaning


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_custom_card_omits_benchmark_texts(benchmark, publishable, tmp_path):
    source = tmp_path / "source"
    # A custom set needs a key for each question; GMAI-MMBench's test split has none.
    shutil.copytree(publishable / "sources" / benchmark, source, ignore=shutil.ignore_patterns("*_TEST_*"))
    (source / "about.yaml").write_text("deidentification: drawn by a program\nlicense: our own terms\n")
    build(benchmark, name="own-set", source=source, out=tmp_path / "set", eval_yaml=True)
    facts = spec(benchmark).card

    # Phrases that would be wrong in a card of custom data.
    of_benchmark = [
        facts.limits,
        facts.licence,
        facts.origin_note,
        "public for years",
        "ROCO",
        "176 pairs",
        "complete official",
    ]
    for file in ("README.md", "LICENSE.md", "eval.yaml"):
        text = " ".join((tmp_path / "set" / file).read_text().split()) if (tmp_path / "set" / file).is_file() else ""
        assert not [words for words in of_benchmark if words and " ".join(words.split()) in text], file

    card = (tmp_path / "set" / "README.md").read_text()
    assert "our own terms" in card
    if benchmark != "gmai-mmbench":  # its table of questions is read as that of any VQA set
        assert f"The format is that of {facts.title}" in card and facts.summary in card
    official = (publishable / benchmark / "README.md").read_text()

    # The same phrases do occur in the card of the benchmark itself.
    assert all(words in official for words in (facts.limits, facts.origin_note, "public for years"))


@pytest.mark.sources
def test_licence_file_lists_image_licences(sources, tmp_path):
    build("halt-medvqa", source=sources / "halt_medvqa", out=tmp_path / "set", text_only=True)
    card = DatasetCard.load(tmp_path / "set" / "README.md")
    assert f"({card.data.license_link})" in card.text
    assert "| unknown | 1,736 |" in (tmp_path / "set" / card.data.license_link).read_text()
