"""Test the command line as a new user meets it: real files, exit codes, one real process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from typer.main import get_command

from dataset_builders.benchmarks import BENCHMARKS
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.records.result import METHOD_NAMES
from eval_harness.store.formatting import format_score
from medprobe.command_line import app
from tests.commands import medprobe
from tests.helpers import write_lines

ROOT = Path(__file__).resolve().parents[1]


def refused(*arguments, cwd):
    """Return the standard error of a command that must end with one line and exit code 2."""
    done = medprobe(*arguments, cwd=cwd, code=2)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """Return a folder with the four phantom datasets under data/."""
    folder = tmp_path_factory.mktemp("workdir")
    medprobe("build", "All", cwd=folder)
    return folder


def scores(path):
    return {name: score["value"] for name, score in json.loads(Path(path).read_text())["scores"].items()}


def test_help_names_every_command_and_bad_input_ends_a_real_process_with_2(tmp_path):
    command = [sys.executable, "-m", "medprobe"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "build", "mediconfuson"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1) and "mediconfuson" in done.stderr
    text = medprobe("--help", cwd=tmp_path).stdout
    for command in ("build", "eval", "score", "results", "submit", "board", "demo"):
        assert command in text


def test_phantoms_have_one_right_answer(workdir):
    medprobe(
        "eval",
        "all",
        "--model",
        "baseline:oracle",
        "--out",
        "runs/oracle",
        "--quiet",
        cwd=workdir,
    )
    for benchmark in BENCHMARKS:
        assert scores(workdir / f"runs/oracle/{benchmark}/result.json")[HEADLINE_METRICS[benchmark]] == 100


def test_a_second_run_asks_nothing_and_rescoring_changes_only_the_time_stamp(workdir):
    run_again = ("eval", "halt-medvqa", "--out", "runs/again", "--model")
    medprobe(*run_again, "baseline:chance", cwd=workdir)
    run = workdir / "runs/again"
    first_result, journal = json.loads((run / "result.json").read_text()), (run / "answers.jsonl").read_bytes()
    medprobe(*run_again, "baseline:chance", cwd=workdir)
    assert (run / "answers.jsonl").read_bytes() == journal
    medprobe("score", "runs/again", cwd=workdir)
    again = json.loads((run / "result.json").read_text())
    first_result.pop("created_at"), again.pop("created_at")
    assert first_result == again
    refusal = refused(*run_again, "baseline:always-B", cwd=workdir)
    assert "baseline:chance" in refusal
    assert "--no-resume" in refusal
    assert (run / "answers.jsonl").read_bytes() == journal


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("build", "mediconfuson"), "Did you mean mediconfusion?"),
        (
            ("eval", "probmed", "--model", "baseline:chance", "--facet", "Modality=CTT"),
            "--facet modality: the label 'CTT'",
        ),
        (("eval", "probmed", "--model", "baseline:chance", "--fail-under", "overal=5"), "Did you mean overall"),
        (("eval", "probmed", "--model", "baseline:chance", "--fail-under", "overall=high"), "METRIC=VALUE"),
        (("eval", "mediconfusion", "--model", "baseline:chance", "--fail-under", "confusion=5"), "is not better"),
        (("results", "data"), "not a results store"),
        (("build", "all", "--as", "mine"), "--as"),
        (("eval", "mediconfusion", "--model", "gpt:4"), "no kind of model"),
        (("eval", "mediconfusion", "--model", "baseline:chance", "--data", "nowhere"), "nowhere"),
        (("eval", "mediconfusion", "--model", "baseline:chance", "--prompt", "nice"), "mc-0"),
        (("eval", "mediconfusion", "--model", "baseline:chance", "--out", "data"), "--out data"),
        (("submit", "data", "--to", "store"), "not a run folder"),
        (("eval", "mediconfusion"), "Missing option '--model'. See `medprobe eval --help`."),
        (("curate", "embd"), "No such command 'embd'. Did you mean 'embed'? See `medprobe curate --help`."),
        (("results", "--fromat", "md"), "No such option: --fromat"),
        (("eval", "mediconfusion", "--model", "baseline:chance", "--data", "data/probmedd"), "(there is none here)"),
        (("submit", "data", "--to", ""), "the argument after --to is empty"),
        (("board", "--data", "nowhere"), "there is no such folder"),
        (("results", "nowhere"), "not a results store"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(workdir, arguments, words):
    files_before = sorted(p.name for p in workdir.iterdir())
    assert words in refused(*arguments, cwd=workdir)
    assert sorted(p.name for p in workdir.iterdir()) == files_before


@pytest.mark.parametrize(
    ("response", "expected_share", "lines"),
    [
        ("A", 1, ("no score: 27 of 28 answers are missing; add", "for example 9")),
        ("What a lovely picture.", 28, ("no score: 28 of 28 answers could not be read; look", "not read: 28 of 28 answers")),
        ("<think>First the left", 28, ("no score: 28 of 28 answers were cut off by the output limit; raise", "for example 9")),
    ],
)  # fmt: skip
def test_a_run_that_says_nothing_has_no_score_and_says_why_first(workdir, tmp_path, response, expected_share, lines):
    questions = pd.read_parquet(next((workdir / "data/mediconfusion/questions_text").glob("*.parquet")))
    answers = [{"question_id": name, "response": response} for name in questions["question_id"]]
    write_lines(tmp_path / "answers.jsonl", answers[:expected_share])
    run = ("--data", workdir / "data/mediconfusion", "--out", tmp_path / "run")
    done = medprobe(
        "eval",
        "mediconfusion",
        "--model",
        f"recorded:{tmp_path / 'answers.jsonl'}",
        *run,
        cwd=workdir,
    )
    again = medprobe("score", tmp_path / "run", cwd=workdir)
    for output in (done.stdout, again.stdout):
        assert all(line.startswith(start) for line, start in zip(output.splitlines(), lines, strict=False)), output
        assert "chance)" not in output and "better than" not in output and "worse than" not in output


def rows_of(text):
    """Return the cells of a Markdown table by model and column."""
    head, _, *lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return {(line[0], name): cell for line in lines for name, cell in zip(head, line, strict=True)}


def test_results_are_models_by_benchmarks_and_every_number_is_that_of_the_run(workdir, tmp_path):
    """The same numbers for every source (runs, their folder, a store, the same one twice), metric
    and label.
    """
    runs = {}
    for model in ("oracle", "chance", "always-A"):
        out = tmp_path / "runs" / model
        medprobe(
            "eval",
            "Probmed, GMAI_MMBench",
            "--model",
            f"baseline:{model}",
            "--out",
            out,
            "--quiet",
            cwd=workdir,
        )
        for run in out.iterdir():
            medprobe("submit", run, "--to", tmp_path / "store", cwd=workdir)
            document = json.loads((run / "result.json").read_text())
            runs[document["model"]["name"], document["benchmark"]["name"]] = document
    for sources in (["runs", "store"], list((tmp_path / "runs").glob("*/*"))):
        for options, metric in (([], None), (["--metric", "ACCURACY", "--metric", "organ"], ("accuracy", "organ"))):
            output = medprobe("results", *sources, *options, "--format", "md", cwd=tmp_path).stdout
            cells = rows_of(output)
            models = [line.split("|")[1].strip() for line in output.splitlines()[2:]]
            assert (
                models == (["Oracle", "Chance", "Always A", "guessing"] if metric is None else models)
                and len(models) == 4
            )
            for (model, benchmark), document in runs.items():
                name = {"probmed": "organ" if metric else "overall", "gmai-mmbench": "accuracy"}[benchmark]
                score = document["scores"][name]
                assert cells[model, f"{benchmark} {name}"].split(" ")[0] == format_score(score["value"])
                low, high = map(
                    float,
                    cells[model, f"{benchmark} {name}"].split(" ")[1].strip("()").split("-"),
                )
                assert (low, high) == pytest.approx((score["low"], score["high"]), abs=0.051)
                assert cells["guessing", f"{benchmark} {name}"] == format_score(score["chance"])
    cell = runs["Chance", "gmai-mmbench"]["breakdown"]["modality"]["CT"]["accuracy"]["value"]
    filtered_command = ("results", "runs", "--facet", "Modality=ct", "--benchmark", "gmai_mmbench", "--model", "CHANCE")
    assert format_score(cell) in medprobe(*filtered_command, cwd=tmp_path).stdout
    table = json.loads(medprobe(*filtered_command, "--format", "json", cwd=tmp_path).stdout)
    assert {(row["model"], row["facet"], row["facet_value"]) for row in table} == {("Chance", "modality", "CT")}
    assert medprobe("results", cwd=tmp_path).stdout == medprobe("results", "runs", cwd=tmp_path).stdout
    papers = medprobe("results", "--published", "--benchmark", "probmed", cwd=workdir).stdout
    assert "GPT-4o" in papers and "gmai" not in papers
    assert r"\toprule" in medprobe("results", "store", "--format", "latex", cwd=tmp_path).stdout


def test_a_threshold_ends_with_1_and_a_run_without_a_score_reaches_none(workdir, tmp_path):
    run = ("eval", "probmed", "--model", "baseline:oracle", "--out", tmp_path / "run", "--quiet")
    assert medprobe(*run, "--fail-under", "Overall=100", cwd=workdir).stdout.startswith("probmed: overall 100.0 %")
    medprobe("score", tmp_path / "run", "--fail-under", "set_accuracy=2", cwd=workdir, code=1)
    always = ("eval", "probmed", "--model", "baseline:always-A", "--out", tmp_path / "always", "--quiet")
    failed = medprobe(
        *always,
        "--fail-under",
        "overall=100",
        "--fail-under",
        "abnormality=2",
        cwd=workdir,
        code=1,
    )
    assert re.fullmatch(
        r"medprobe: --fail-under overall of Always A on probmed: [\d.]+ is under 100\n",
        failed.stderr,
    )
    for share in ("set_accuracy=0.25", "overall=1", "overall=100.01", "overall=-5"):
        assert "is in percent" in medprobe(*run, "--fail-under", share, cwd=workdir, code=2).stderr
    write_lines(
        tmp_path / "none.jsonl",
        [{"question_id": "brain_mri_1-abnormality", "response": "yes"}],
    )
    silent = ("eval", "probmed", "--model", f"recorded:{tmp_path / 'none.jsonl'}", "--out", tmp_path / "silent")
    failed = medprobe(*silent, "--fail-under", "overall=0", "--format", "json", cwd=workdir, code=1)
    assert json.loads(failed.stdout)["statuses"]["missing"] == 167 and "no score" in failed.stderr


def test_the_headline_metric_is_the_first_row_and_the_rest_is_there_when_asked_for(workdir, tmp_path):
    run = ("eval", "probmed", "--model", "baseline:chance", "--out", tmp_path / "run")
    default_lines, all_lines = (
        medprobe(*run, *options, cwd=workdir).stdout.splitlines() for options in ((), ("--all-metrics",))
    )
    names = set(scores(tmp_path / "run/result.json"))
    for lines in (default_lines, all_lines):
        first_row = lines[next(at for at, line in enumerate(lines) if line.startswith("metric")) + 1]
        assert lines[0].split()[0] == first_row.split()[0] == "overall"
    listed = [line.split()[0] for line in all_lines[1:] if line.split() and line.split()[0] in names]
    assert sorted(listed) == sorted(names)
    assert not any(line.startswith(("share_", "irrelevant")) for line in default_lines)


def test_list_names_what_there_is():
    rows = json.loads(medprobe("list", "--format", "json", cwd=ROOT).stdout)
    assert [row["benchmark"] for row in rows] == list(BENCHMARKS)
    for kind, expected_words in (("prompts", ("mc-0", "MediConfusion Table 5")), ("methods", METHOD_NAMES)):
        output = medprobe("list", kind, cwd=ROOT).stdout
        assert all(name in output for name in expected_words)


def test_help_stands_in_panels_and_loses_no_text():
    """Square brackets are markup in panels, so a text in brackets would vanish."""
    for name, command in {**get_command(app).commands, **get_command(app).commands["curate"].commands}.items():
        texts = [command.help or "", *(parameter.help or "" for parameter in command.params)]
        assert not any(re.search(r"\[[a-z/#@]", text) for text in texts), name
        assert name in get_command(app).commands["curate"].commands or command.rich_help_panel, name
