"""Test `import medprobe`: its fourteen names, and that its tables agree with `result.json` and the
run folder for every benchmark and kind of run.
"""

import ast
import hashlib
import inspect
import json
import math
import os
import random
import re
import subprocess
import sys
import types
from pathlib import Path

import pandas as pd
import pytest
from datasets import DatasetDict, Image, get_dataset_config_names, load_dataset
from matplotlib.figure import Figure

import medprobe
from dataset_builders.benchmarks import BENCHMARKS, DEFAULT_SPLITS
from eval_harness.records.result import read_result
from eval_harness.runs.config import OPTION_TYPES
from eval_harness.store.adding import withdraw
from medprobe.score_table import as_text
from tests.commands import medprobe as command
from tests.sampling import few

ROOT = Path(__file__).resolve().parents[1]
PUBLIC_NAMES = "BadInput Model Request Response build compare evaluate load_results load_run open_dataset publish read_choice submit why"
SAID = ("A", "B", "The answer is C.", "yes", "No", "A and B", "B, C", "", "I cannot tell.", "42 mm", "<think>A or")
MODEL = """
import hashlib
from medprobe import Response

class Scripted:
    def __init__(self, settings=None): pass

    def generate(self, requests):
        for request in requests:
            drawn = hashlib.sha256(f"{request.question_id}/{request.sample}/SEED".encode()).digest()
            said = request.options[drawn[1] % len(request.options)] if drawn[0] % 3 else SAID[drawn[1] % len(SAID)]
            failed = drawn[2] % 9 == 0
            yield Response(request.question_id, request.sample, *(("", "failed") if failed else (said,)))
"""


def scripted(seed):
    names = {"SAID": SAID}
    exec(MODEL.replace("SEED", str(seed)), names)
    return names["Scripted"]


RUN_CASES = [
    ("mediconfusion", {"permute": True}),
    ("probmed", {"samples": 3}),
    ("gmai-mmbench", {"extraction": "official"}),
    ("gmai-mmbench", {"split": "test", "samples": 2}),
    ("halt-medvqa", {"limit": 5, "samples": 2}),
    ("probmed-vqa-rad", {}),
]
"""Return runs of every benchmark and of every kind."""


@pytest.mark.parametrize(
    ("family", "options"), RUN_CASES, ids=lambda loaded: loaded if isinstance(loaded, str) else "-".join(loaded)
)
def test_a_run_says_what_its_files_say(phantoms, tmp_path, family, options):
    (tmp_path / "model.py").write_text(
        MODEL.replace("SEED", family).replace("import hashlib", f"import hashlib\nSAID = {SAID}")
    )
    arguments = [word for name, value in options.items() for word in (f"--{name}", *([] if value is True else [value]))]
    data = phantoms / family
    command(
        "eval",
        family,
        "--model",
        "model.py:Scripted",
        "--data",
        data,
        "--out",
        "typed",
        *arguments,
        cwd=tmp_path,
    )
    run = medprobe.evaluate(
        family,
        scripted(family)(),
        data=phantoms / family,
        out=tmp_path / "run",
        **options,
    )
    typed, again = medprobe.load_run(tmp_path / "typed"), medprobe.load_run(run)
    document = json.loads((tmp_path / "typed" / "result.json").read_text())
    arguments = json.loads(run.result.to_json())
    for part in ("scores", "breakdown", "statuses", "benchmark", "method", "model", "deviations"):
        assert arguments[part] == document[part] == json.loads(typed.result.to_json())[part], part
    for loaded in (run, typed, again):
        rows = loaded.scores.astype(object).where(loaded.scores.notna(), None).set_index("metric").to_dict("index")
        assert list(rows) == list(document["scores"])
        assert rows == {
            name: {column: score[column] for column in rows[name]} for name, score in document["scores"].items()
        }
    pd.testing.assert_frame_equal(run.answers, again.answers)
    pd.testing.assert_frame_equal(run.answers, typed.answers)
    questions = medprobe.open_dataset(phantoms / family).questions(options.get("split") or DEFAULT_SPLITS[family])
    check_answers(run.answers, run, questions.set_index("question_id", drop=False))
    assert str(run).splitlines()[0] == str(typed).splitlines()[0]
    assert isinstance(run.plot(), Figure)


def check_answers(answers, run, questions):
    result = run.result
    question_ids = [name for name in questions["question_id"] if name in set(answers["question_id"])]
    assert len(question_ids) == result.benchmark.questions
    assert list(zip(answers["question_id"], answers["sample"], strict=True)) == [
        (name, sample) for name in question_ids for sample in range(result.method.samples)
    ]
    permuted, official = result.method.generation["permute"], result.method.extraction == "official"
    for row in answers.fillna({"key": "", "choice": ""}).to_dict("records"):
        question, key, choice = questions.loc[row["question_id"]], row["key"], row["choice"]
        assert row["question"] == question["question"] and list(row["options"]) == list(question["options"])
        assert key == "".join("ABCDEFGH"[position] for position in sorted(question["answer"]))
        assert bool(choice) == (row["status"] == "answered")
        if row["status"] in ("failed", "missing"):
            assert row["response"] == ""
        elif not official:
            k, turned = len(question["options"]), row["sample"] if permuted else 0
            options = [question["options"][(position + turned) % k] for position in range(k)]
            reading = medprobe.read_choice(row["response"], options, question["question_type"])
            assert row["status"] == reading.status
            assert choice == "".join(sorted("ABCDEFGH"[(position + turned) % k] for position in reading.choice))
        # The official reader of yes and no may read both words.
        both_may_count = official and question["question_type"] == "yes_no"
        if key:
            assert row["correct"] == (set(key) <= set(choice) if both_may_count else choice == key)
        else:
            assert pd.isna(row["correct"])


class Says:
    """A model that returns the result of a function of the requests."""

    def __init__(self, replies):
        self.generate = replies


def texts(requests):
    return [hashlib.sha256(request.question_id.encode()).hexdigest()[0].upper() for request in requests]


def shuffled(requests):
    responses = [
        medprobe.Response(request.question_id, request.sample, text)
        for request, text in zip(requests, texts(requests), strict=True)
    ]
    return random.Random(1).sample(responses, len(responses))


def test_texts_in_order_and_responses_in_any_order_are_the_same_run(phantoms, tmp_path):
    data, with_network = phantoms / "gmai-mmbench", Says(shuffled)
    with_network.model = object()
    models = (Says(lambda requests: iter(texts(requests))), with_network)
    text_run, response_run = (
        medprobe.evaluate("gmai-mmbench", model, data=data, out=tmp_path / str(id(model))) for model in models
    )
    pd.testing.assert_frame_equal(text_run.answers, response_run.answers)
    assert text_run.result.model.name == response_run.result.model.name == "Says"


def leaves(requests):
    raise SystemExit(3)


BAD_MODELS = {
    "2 texts for 1 requests": Says(lambda requests: (text for text in ["A"] * (len(requests) + 1))),
    "exactly one response": Says(lambda requests: 2 * [medprobe.Response(requests[0].question_id, 0, "A")]),
    "was not requested": Says(lambda requests: [medprobe.Response("nobody", 0, "A")]),
    "returned nothing": Says(lambda requests: None),
    "returned one str": Says(lambda requests: "A"),
    "returned one dict": Says(lambda requests: {request.question_id: "A" for request in requests}),
    "SystemExit: 3": Says(leaves),
    "scores that are not numbers": Says(
        lambda requests: [medprobe.Response(r.question_id, 0, "", scores=(math.nan, 1.0)) for r in requests]
    ),
    "must be a list of strings": types.SimpleNamespace(generate=texts, deviations="one"),
    "is a class": Says,
    "no generate": object(),
}


@pytest.mark.parametrize("words", BAD_MODELS)
def test_a_model_that_answers_otherwise_is_one_line(phantoms, tmp_path, words):
    with pytest.raises(medprobe.BadInput, match=words) as caught:
        medprobe.evaluate(
            "mediconfusion",
            BAD_MODELS[words],
            data=phantoms / "mediconfusion",
            out=tmp_path / "run",
        )
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_changed_object_is_asked_anew_and_a_named_folder_goes_on(phantoms, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = phantoms / "mediconfusion"
    run_a, run_b = (
        medprobe.evaluate("mediconfusion", Says(lambda _, text=text: [text] * 28), data=data) for text in "AB"
    )
    assert (
        set(run_a.answers["choice"]) == {"A"} and set(run_b.answers["choice"]) == {"B"} and run_a.folder != run_b.folder
    )
    requests_sent = []
    counted = Says(lambda requests: requests_sent.extend(requests) or ["A"] * len(requests))
    for limits in ({}, {}, {"resume": False}):
        medprobe.evaluate("mediconfusion", counted, data=data, out="mine", **limits)
    assert len(requests_sent) == 2 * 28
    # The answers of a run that is started over are kept.
    assert len(list(Path("mine").glob(".before-*/answers.jsonl"))) == 1


REFUSED_API_CALLS = {
    "Did you mean samples": lambda data: medprobe.evaluate(
        "mediconfusion",
        "baseline:chance",
        data=data,
        sample=2,
    ),
    "no_resume: not an option": lambda data: medprobe.evaluate(
        "mediconfusion", "baseline:chance", data=data, no_resume=True
    ),
    "limit: .* integer": lambda data: medprobe.evaluate(
        "mediconfusion",
        "baseline:chance",
        data=data,
        limit="few",
    ),
    "generation: .* JSON": lambda data: medprobe.evaluate(
        "mediconfusion", "baseline:chance", data=data, generation={"a": Says}
    ),
    "no kind of model": lambda data: medprobe.evaluate("mediconfusion", "gpt:4", data=data),
    "^method cot": lambda data: medprobe.evaluate(
        "mediconfusion",
        "baseline:chance",
        data=data,
        method="cot",
    ),
    "nowhere/result.json: no such result": lambda data: medprobe.load_run("nowhere"),
    "is a file": lambda data: medprobe.load_run(data / "README.md"),
    "nowhere: no such result": lambda data: medprobe.compare("nowhere", "nowhere"),
    "not in any paper's tables": lambda data: medprobe.compare(
        "published:Nobody",
        "published:Nobody",
    ),
    "which the files answer": lambda data: medprobe.why(data / "README.md", data / "README.md"),
    "not a results store": lambda data: medprobe.load_results("nowhere"),
    "name a run or a store": lambda data: medprobe.load_results(),
    "no such folder": lambda data: medprobe.open_dataset("nowhere"),
    "unknown. Did you mean mediconfusion": lambda data: medprobe.build("mediconfuson"),
    "official name": lambda data: medprobe.publish(data, "ORG/mediconfusion"),
    "nowhere: no such file": lambda data: medprobe.submit("nowhere", "store"),
    "question_type 'open'": lambda data: medprobe.read_choice("A", ["x", "y"], "open"),
    "options 'xy'": lambda data: medprobe.read_choice("A", "xy"),
    "^base_url: an object runs": lambda data: medprobe.evaluate(
        "mediconfusion", Says(lambda requests: []), data=data, base_url="http://127.0.0.1:1/v1"
    ),
    "benchmark None: give its name": lambda data: medprobe.evaluate(
        None,
        "baseline:chance",
        data=data,
    ),
}


@pytest.mark.parametrize("words", REFUSED_API_CALLS)
def test_what_the_caller_can_fix_is_one_line(phantoms, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(medprobe.BadInput, match=words) as caught:
        REFUSED_API_CALLS[words](phantoms / "mediconfusion")
    assert "\n" not in str(caught.value)
    assert "--" not in "".join(str(caught.value).split("`")[::2]), "an option of the command line"
    assert list(tmp_path.iterdir()) == []


def test_options_in_python_are_those_of_the_command_line(phantoms, tmp_path):
    parameters = set(inspect.signature(medprobe.evaluate).parameters) - {"resume", "argv", "options", "arms"}
    assert parameters <= set(OPTION_TYPES)
    honours = scripted(2)()
    honours.options = ("generation", "thinking")
    run = medprobe.evaluate(
        "gmai-mmbench", honours, data=phantoms / "gmai-mmbench", out=tmp_path / "run", facet="modality=X-ray", name="Mine",
        generation={"top_p": 0.9}, price=(2.5, 10), batch_size=4, thinking=4096, argv=["eval", "x"],
    )  # fmt: skip
    assert set(run.answers["modality"]) == {"X-ray"} and run.result.model.name == "Mine"
    assert (
        run.result.method.generation["generation"] == {"top_p": 0.9}
        and run.result.method.generation["thinking"] == 4096
    )
    del honours.options  # without the attribute it supports no options
    with pytest.raises(medprobe.BadInput, match="does not support it"):
        medprobe.evaluate(
            "gmai-mmbench", honours, data=phantoms / "gmai-mmbench", out=tmp_path / "other", generation={"top_p": 0.9}
        )
    assert run.result.environment["price_per_million_tokens"] == [2.5, 10] and run.result.command == "medprobe eval x"


@pytest.mark.usefixtures("examine_in_child")
def test_a_store_gives_back_what_was_submitted(phantoms, tmp_path):
    run = medprobe.evaluate(
        "halt-medvqa",
        scripted(3)(),
        data=phantoms / "halt-medvqa",
        out=tmp_path / "run",
    )
    submitted, resubmitted = (
        medprobe.submit(run, tmp_path / "store"),
        medprobe.submit(run.folder, str(tmp_path / "store")),
    )
    assert (submitted.new, resubmitted.new, submitted.location) == (True, False, resubmitted.location)
    stored = medprobe.load_run(submitted.location)
    pd.testing.assert_frame_equal(stored.scores, run.scores)
    pd.testing.assert_frame_equal(stored.answers, run.answers)
    table = medprobe.load_results(tmp_path / "store")
    overall = table[table["facet"].isna()].set_index("metric")["value"].astype("float64")
    pd.testing.assert_series_equal(overall, run.scores.set_index("metric")["value"])
    papers = medprobe.load_results(published=True)
    assert len(medprobe.load_results(tmp_path / "store", published=True)) == len(table) + len(papers)
    Path(submitted.location, "result.json").write_text("{")
    with pytest.warns(UserWarning, match="skipped"):
        assert medprobe.load_results(tmp_path / "store").empty


def test_withdrawn_results_and_parts_are_marked_and_stand_below(phantoms, tmp_path):
    store, data = tmp_path / "store", phantoms / "gmai-mmbench"
    names = {}
    for name, limit in (("Whole", None), ("Part", 4), ("Taken back", None)):
        run = medprobe.evaluate(
            "gmai-mmbench", scripted(len(name))(), data=data, out=tmp_path / name, limit=limit, name=name
        )
        names[name] = Path(medprobe.submit(run, store).location).name
    withdraw(store, names["Taken back"], "a wrong prompt")
    rows = medprobe.load_results(tmp_path / "Taken back", store)
    marks = rows[["model", "part", "withdrawn"]].drop_duplicates().set_index("model")
    assert marks["withdrawn"].dropna().to_dict() == {"Taken back": "a wrong prompt"}
    assert marks["part"].notna().to_dict() == {"Whole": False, "Part": True, "Taken back": False}
    lines = as_text(rows[rows["headline"] & rows["facet"].isna()]).splitlines()
    assert [line.split("  ")[0] for line in lines[2:5]] == ["Whole", "Part", "Taken back"]
    assert "withdrawn" in lines[4] and any("a wrong prompt" in line for line in lines[5:])


def test_compare_says_what_the_command_prints(phantoms, tmp_path):
    data = phantoms / "probmed"
    runs = [medprobe.evaluate("probmed", scripted(seed)(), data=data, out=tmp_path / f"{seed}") for seed in (4, 5)]
    table = medprobe.compare(*runs)
    assert list(table["metric"]) == list(runs[0].scores["metric"])
    # Scores that depend on refusals or missing answers are not compared, and the reason is given.
    values = (runs[0].scores["value"] - runs[1].scores["value"]).where(table["note"].isna())
    pd.testing.assert_series_equal(table["difference"], values, check_names=False)
    tested = table[table["p"].notna() & table["low"].notna()]
    assert len(tested) > 3 and ((tested["p"] < 0.05) == ((tested["low"] > 0) | (tested["high"] < 0))).all()
    printed = command("compare", runs[0].folder, runs[1].folder, "--all-metrics", cwd=tmp_path).stdout
    for row in table.dropna(subset=["difference"]).itertuples():
        difference = re.escape(f"{row.difference:+.1f}")
        assert re.search(rf"(?m)^  {row.metric}\b.* {difference}\b", printed), row.metric
    swapped = medprobe.compare(runs[1], runs[0])
    pd.testing.assert_series_equal(swapped["difference"], -table["difference"])


@pytest.mark.parametrize("family", few(BENCHMARKS, 2))
def test_a_config_is_what_the_library_datasets_reads(phantoms, family):
    """We use the files' metadata alone to find the types of the columns; the library uses
    the card.
    """
    dataset, folder = medprobe.open_dataset(phantoms / family), str(phantoms / family)
    for config in get_dataset_config_names(folder):
        opened, loaded = dataset.to_datasets(config), load_dataset(folder, config)
        assert isinstance(opened, DatasetDict) and list(opened) == list(loaded)
        for split in loaded:
            assert opened[split].features == loaded[split].features
            assert opened[split].data.table.equals(loaded[split].data.table)
    default_config = dataset.to_datasets()
    assert list(default_config) == dataset.splits
    assert all(isinstance(rows.features["image"], Image) for rows in default_config.values())


IMPORTS = """
import json, os, sys
before = dict(os.environ)
import medprobe
first = sorted(sys.modules)
import leaderboard_space, eval_harness, dataset_builders
same = dict(os.environ) == before
names = {}
exec("from medprobe import *", names)
print(json.dumps([first, same, sorted(set(names) - {"__builtins__"}), sorted(sys.modules), medprobe.__file__, medprobe.__version__]))
"""
HEAVY = {"torch", "transformers", "gradio", "datasets", "openai", "matplotlib"}


def test_the_import_works_in_any_folder_and_loads_nothing(tmp_path):
    for name in ("curation", "eval_harness", "dataset_builders", "leaderboard_space", "datasets"):
        (tmp_path / name).mkdir()  # a folder of data, as users have them
        (tmp_path / name / "notes.txt").write_text("data")
    (tmp_path / "datasets.py").write_text("raise SystemExit('imported')\n")
    (tmp_path / "curation" / "__init__.py").write_text("raise SystemExit('imported')\n")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    first_modules, environment_unchanged, names, all_modules, file, version = json.loads(done.stdout)
    assert not {"pandas", "numpy", "typer", "pydantic", *HEAVY} & set(first_modules)
    assert environment_unchanged and not HEAVY & set(all_modules)
    assert names == sorted(medprobe.__all__) == PUBLIC_NAMES.split()
    assert Path(file).parent == ROOT / "medprobe" and version == medprobe.__version__


def blocks(path):
    return re.findall(r"(?s)```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("guide", ["docs/api.md", "docs/plug_in.md"])
def test_the_examples_run_in_an_empty_folder(guide, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for block in blocks(guide):
        exec(compile(block, guide, "exec"), names)


def test_guides_and_notebooks_import_nothing_deeper():
    sources = {path: blocks(path.relative_to(ROOT)) for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}
    sources |= {path: [path.read_text()] for path in (ROOT / "docs" / "examples").glob("*.py")}
    for path in (ROOT / "docs" / "notebooks").glob("*.ipynb"):
        sources[path] = [
            "".join(cell["source"]) for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"
        ]
    internal_packages = ("medprobe.", "eval_harness", "dataset_builders", "leaderboard_space", "curation")
    seen = 0
    for path, texts_of in sources.items():
        for node in (node for text in texts_of for node in ast.walk(ast.parse(text))):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            seen += "medprobe" in imported
            assert not [name for name in imported if name.startswith(internal_packages)], path
    assert seen > 6
    for path in (ROOT / "docs" / "plug_in.md", ROOT / "docs" / "api.md"):
        assert not re.search(rf"\b({'|'.join(internal_packages[1:])})[./]", path.read_text(encoding="utf-8")), path


def test_the_page_describes_every_name():
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    headings = set(re.findall(r"`(\w+)[(`]", "\n".join(re.findall(r"(?m)^## .*", page))))
    assert headings | {"BadInput"} == set(medprobe.__all__)
    for name, signature in re.findall(r"(?m)^## `(\w+)\((.*)\)`", page):
        parameters = inspect.signature(getattr(medprobe, name)).parameters
        documented = [part.partition("=")[0].strip(" *") for part in re.sub(r"\(.*?\)", "", signature).split(",")]
        assert [part for part in documented if part and part != "..."] == [
            part for part in parameters if part in documented
        ], name


def test_a_result_without_answers_says_so(phantoms, tmp_path):
    run = medprobe.evaluate(
        "mediconfusion",
        "baseline:chance",
        data=phantoms / "mediconfusion",
        out=tmp_path / "run",
    )
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "result.json").write_text(read_result(run.folder / "result.json").to_json())
    result_only = medprobe.load_run(tmp_path / "alone")
    pd.testing.assert_frame_equal(result_only.scores, run.scores)
    with pytest.raises(medprobe.BadInput, match="without answers"):
        result_only.answers  # noqa: B018
