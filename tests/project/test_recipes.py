"""Every `medprobe` line in guides and recipes is one that the command line takes; recipes run as far as one machine can run them."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest
import typer
import yaml
from huggingface_hub import HfApi

import medprobe
from dataset_builders.build import build
from tests.localhub.accounts import CURATOR

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
GUIDES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md"), *RECIPES.iterdir()])
COMMAND = typer.main.get_command(medprobe.app)


def command_lines(text):
    """Every command line that starts with `medprobe`, as words: continued lines put together, up to a comment or what it is joined to."""
    for line in re.sub(r"\\\n\s*(?:# +)?", " ", text).splitlines():
        found = re.match(r"(?:#?\s{2,}|\$ |)(?:[A-Z_]+=\S+ )*medprobe (?=[a-z-])(.*)", line)
        if found:
            words = shlex.shlex(found[1], posix=True, punctuation_chars="|&;>")
            words.whitespace_split = True
            yield list(takewhile(lambda word: not set(word) <= set("|&;>"), words))


def parse(words):
    """Let the command line read it, and run nothing. Raises AssertionError for an unknown command, option or missing argument."""
    command, left = COMMAND, [word for word in words if not re.fullmatch(r"\$\{\w+\[@\]\}", word)]
    while hasattr(command, "commands") and left:
        assert left[0] in command.commands, f"there is no command {left[0]}"
        command, left = command.commands[left[0]], left[1:]
    if "--help" in left:
        return
    try:
        command.make_context(command.name, left)
    except Exception as error:  # the library's own classes are private
        raise AssertionError(f"medprobe {shlex.join(words)}: {error}") from error


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_line_of_a_guide_is_one_that_is_there(path):
    for line in command_lines(path.read_text(encoding="utf-8")):
        parse(line)


def test_a_wrong_line_is_found():
    good, bad = command_lines(
        "    medprobe eval x --model y \\\n        --data 'z > q'   # a comment\n  medprobe eval x --modle y\n"
    )
    parse(good)
    assert good == ["eval", "x", "--model", "y", "--data", "z > q"]
    for words in (bad, [*good, "--modle", "y"], good[:-1], ["eval", "x"], ["evil", "x"], ["curate", "nothing"]):
        with pytest.raises(AssertionError):
            parse(words)
    assert sum(len(list(command_lines(path.read_text()))) for path in GUIDES) > 80


@pytest.fixture
def shell(tmp_path):
    """Runs a script with `medprobe` on its path; what it printed."""
    program = tmp_path / "bin" / "medprobe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {ROOT / "medprobe.py"} "$@"\n')
    program.chmod(0o755)
    hf = Path(sys.executable).with_name("hf")
    (program.parent / "hf").symlink_to(hf)

    def run(script, *arguments, **variables):
        done = subprocess.run(
            ["bash", "-c" if "\n" in str(script) else script, *([str(script)] if "\n" in str(script) else []), *arguments],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)} | variables,
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_slurm_array_asks_every_question_once(shell, tmp_path):
    build("mediconfusion", out=tmp_path / "data")
    text = (RECIPES / "slurm_array.sh").read_text()
    first, last = map(int, re.search(r"#SBATCH --array=(\d+)-(\d+)", text).groups())
    assert last > first
    shares = {"SLURM_ARRAY_TASK_MIN": "3", "SLURM_ARRAY_TASK_COUNT": "2", "BENCHMARK": "mediconfusion"}
    for task in ("3", "4"):
        said = shell(
            RECIPES / "slurm_array.sh",
            SLURM_ARRAY_TASK_ID=task,
            DATA="data",
            MODEL="baseline:oracle",
            RUN="run",
            **shares,
        )
        assert (tmp_path / "run/result.json").exists() == (task == "4"), said
    assert len((tmp_path / "run/answers.jsonl").read_text().splitlines()) == 28


def test_the_job_is_one_that_the_hub_s_command_line_takes(shell):
    named = {"IMAGE": "org/medprobe", "BENCHMARK": "mediconfusion", "DATA": "ORG/mediconfusion", "BUCKET": "ORG/runs"}
    said = shell(RECIPES / "hf_job.sh", "--dry-run", MODEL="org/vlm", STORE="ORG/results", HF_HUB_OFFLINE="1", **named)
    assert "org/medprobe" in said and "a10g-large" in said and "hf://buckets/ORG/runs:/runs" in said
    [command] = re.findall(r"bash -c '(.*)'", said)
    first, second = (shlex.split(part)[1:] for part in command.split(" && "))
    parse(first), parse(second)
    assert first[-2:] == ["--out", "/runs/mediconfusion-org--vlm"] and second[1] == "/runs/mediconfusion-org--vlm"


def test_the_action_verifies_every_ten_minutes(shell, local_hub):
    action = yaml.load((RECIPES / "verify-results.yml").read_text(), yaml.BaseLoader)
    assert action["on"]["schedule"] == [{"cron": "*/10 * * * *"}] and action["permissions"] == {"contents": "read"}
    [job] = action["jobs"].values()
    assert int(job["timeout-minutes"]) <= 60 and action["concurrency"]["cancel-in-progress"] == "false"
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in job["steps"] if "uses" in step)
    script = job["steps"][-1]["run"]
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    for name in ("results", "mediconfusion"):
        api.create_repo(f"ORG/{name}", repo_type="dataset")
    variables = {"HF_ENDPOINT": local_hub.endpoint, "HF_TOKEN": CURATOR, "HF_HUB_DISABLE_XET": "1", "DATA": ""}
    assert "nothing to verify" in shell(script, STORE="ORG/results", **variables)


def test_the_image_installs_what_is_there():
    lines = re.sub(r"\\\n", " ", (RECIPES / "Dockerfile").read_text()).splitlines()
    steps = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    assert {name for name, _ in steps} <= {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "CMD"}
    copied = {name for step, rest in steps if step == "COPY" for name in rest.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {"medprobe.py", "pyproject.toml", "constraints.txt", project["project"]["readme"]} <= copied
    [extras] = re.findall(r"ARG EXTRAS=(\S+)", "\n".join(lines))
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
