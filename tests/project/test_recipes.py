"""Check that the command line accepts every `medprobe` line in guides and recipes, and run the
recipes as far as one machine can.
"""

import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import httpx
import pytest
import typer
import yaml
from huggingface_hub import HfApi

from dataset_builders.build import build
from dataset_builders.hub.publish import publish
from medprobe.command_line import app
from tests.localhub.accounts import CURATOR
from tests.processes import free_port, output_of

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"
GUIDES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("**/*.md"), *RECIPES.iterdir()])
COMMAND = typer.main.get_command(app)


def command_lines(text):
    """Return every command line that starts with `medprobe` as words: continued lines are joined,
    up to a comment or an operator.
    """
    for line in re.sub(r"\\\n\s*(?:# +)?", " ", text).splitlines():
        match = re.match(r"(?:#?\s{2,}|\$ |)(?:[A-Z_]+=\S+ )*medprobe (?=[a-z-])(.*)", line)
        if match:
            words = shlex.shlex(match[1], posix=True, punctuation_chars="|&;>")
            words.whitespace_split = True
            yield list(takewhile(lambda word: not set(word) <= set("|&;>"), words))


def parse(words):
    """Let the command line parse the words without running anything. Raises AssertionError for an
    unknown command, option or missing argument.
    """
    command, remaining = COMMAND, [word for word in words if not re.fullmatch(r"\$\{\w+\[@\]\}", word)]
    while hasattr(command, "commands") and remaining:
        assert remaining[0] in command.commands, f"there is no command {remaining[0]}"
        command, remaining = command.commands[remaining[0]], remaining[1:]
    if "--help" in remaining:
        return
    try:
        command.make_context(command.name, remaining)
    except Exception as error:  # the library's own classes are private
        raise AssertionError(f"medprobe {shlex.join(words)}: {error}") from error


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_command_line_of_a_guide_is_one_that_is_there(path):
    text = path.read_text(encoding="utf-8")
    for line in command_lines(text):
        parse(line)
    # inside a sentence, often without its arguments
    for mentioned in re.findall(r"`medprobe ([a-z][^`\n]*)", text):
        command, words = COMMAND, mentioned.split()
        while words and words[0] in getattr(command, "commands", ()):
            command = command.commands[words.pop(0)]
        valid_options = {
            "--help",
            *(name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)),
        }
        used_options = {re.match(r"--[a-z-]*", word)[0] for word in words if word.startswith("--")}
        assert (not words or not hasattr(command, "commands")) and used_options <= valid_options, mentioned


@pytest.fixture
def shell(tmp_path):
    """Run a script with `medprobe` on its path; return its output."""
    program = tmp_path / "bin" / "medprobe"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m medprobe "$@"\n')
    program.chmod(0o755)
    hf = Path(sys.executable).with_name("hf")
    (program.parent / "hf").symlink_to(hf)

    def run(script, *arguments, **variables):
        command = ["bash", "-c", script] if "\n" in str(script) else ["bash", script]
        paths = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
        return output_of([*command, *arguments], cwd=tmp_path, env=os.environ | paths | variables)

    return run


SBATCH = """
import os, re, subprocess, sys
options = {name: value for name, value in (word.removeprefix("--").split("=", 1) for word in sys.argv[1:-1])}
script = open(sys.argv[-1]).read()
options = dict(re.findall(r"(?m)^#SBATCH --([a-z-]+)=(.*)$", script)) | options  # the command line wins, as with Slurm's own
first, last = map(int, options["array"].split("-"))
everything, *pairs = options["export"].split(",")
assert everything == "ALL"
shared = dict(os.environ) | dict(pair.split("=", 1) for pair in pairs)
shared |= {"SLURM_ARRAY_TASK_MIN": str(first), "SLURM_ARRAY_TASK_COUNT": str(last - first + 1)}
tasks = []
for number in range(first, last + 1):
    log = options["output"].replace("%x", options["job-name"]).replace("%A", "77").replace("%a", str(number))
    variables = shared | {"SLURM_ARRAY_TASK_ID": str(number)}
    tasks.append(subprocess.Popen(["bash", "-c", script], env=variables, stdout=open(log, "w"), stderr=subprocess.STDOUT))
sys.exit(max(task.wait() for task in tasks))
"""
"""Imitate Slurm's `sbatch --wait` on one machine: read the script's own options and the given ones,
and start every task of the array at once.
"""


@pytest.mark.exhaustive
def test_the_slurm_array_asks_every_question_once(shell, tmp_path):
    """Run the command of docs/recipes.md with two concurrent tasks."""
    build("mediconfusion", out=tmp_path / "data")
    (tmp_path / "bin" / "sbatch").write_text(f"#!{sys.executable}\n{SBATCH}")
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    documented = (ROOT / "docs/recipes.md").read_text()
    [command] = re.findall(r"(?m)^    mkdir -p logs\n    sbatch (--export=ALL,\S+) recipes/slurm_array.sh$", documented)
    for name, value in {"DATA": "data", "MODEL": "baseline:oracle", "RUN": "run"}.items():
        command = re.sub(rf"\b{name}=[^,]+", f"{name}={value}", command)
    shell(f"mkdir -p logs\nsbatch --array=3-4 {command} {RECIPES / 'slurm_array.sh'}")
    assert len(list((tmp_path / "logs").glob("medprobe-77-[34].log"))) == 2
    assert (tmp_path / "run/result.json").exists()
    assert len((tmp_path / "run/answers.jsonl").read_text().splitlines()) == 28
    first_task, last_task = map(
        int, re.search(r"#SBATCH --array=(\d+)-(\d+)", (RECIPES / "slurm_array.sh").read_text()).groups()
    )
    assert last_task > first_task


def payload(repository, scope):
    """What a webhook sends according to the Hub's documentation (version 3)."""
    address = {"web": "https://hub", "api": "https://hub/api"}
    repo = {"id": "1", "owner": {"id": "2"}, "name": repository, "private": False, "type": "dataset", "url": address}
    return {"event": {"action": "create", "scope": scope}, "repo": repo, "webhook": {"id": "3", "version": 3}}


@pytest.mark.exhaustive
def test_a_job_of_the_hub_opens_a_pull_request_that_a_webhook_verifies_at_once(shell, local_hub, tmp_path, monkeypatch):
    """`hf jobs run` hands the job to the Hub, and its command runs as it would there; the webhook
    verifies the pull request that it opened, so nothing is left for the scheduled action.
    """
    action = yaml.load((RECIPES / "verify-results.yml").read_text(), yaml.BaseLoader)
    assert action["on"]["schedule"] == [{"cron": "*/10 * * * *"}] and action["permissions"] == {"contents": "read"}
    [steps] = [job["steps"] for job in action["jobs"].values()]
    assert all(("uses" in step) != ("run" in step) for step in steps)
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]) for step in steps if "uses" in step)
    build("mediconfusion", out=tmp_path / "data", text_only=True)
    monkeypatch.setenv("HF_TOKEN", CURATOR)
    publish(tmp_path / "data", "ORG/mediconfusion-phantoms", tag="v1")
    api = HfApi(endpoint=local_hub.endpoint, token=CURATOR)
    api.create_repo("ORG/results", repo_type="dataset")
    token = {"HF_ENDPOINT": local_hub.endpoint, "HF_TOKEN": CURATOR, "HF_HUB_DISABLE_XET": "1"}
    environment = {
        "IMAGE": "org/medprobe",
        "BENCHMARK": "mediconfusion",
        "DATA": "ORG/mediconfusion-phantoms",
        "BUCKET": "ORG/runs",
    }
    shell(RECIPES / "hf_job.sh", MODEL="baseline:chance", STORE="ORG/results", **environment, **token)
    [job] = local_hub.hub.jobs
    assert (job["dockerImage"], job["flavor"], job["secrets"]) == ("org/medprobe", "a10g-large", {"HF_TOKEN": CURATOR})
    [volume] = job["volumes"]
    assert (volume["type"], volume["source"], volume["mountPath"]) == ("bucket", "ORG/runs", "/runs")
    program, option, command = job["command"]
    assert (program, option) == ("bash", "-c")
    shell(command.replace(volume["mountPath"], str(tmp_path / "bucket")) + "\n", **token)
    port = free_port()
    environment = {
        "MEDPROBE_STORE": "ORG/results",
        "MEDPROBE_DATA": "ORG/mediconfusion-phantoms",
        "WEBHOOK_SECRET": "hush",
    }
    environment |= token | {
        "GRADIO_SERVER_PORT": str(port),
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1",
        "GRADIO_ANALYTICS_ENABLED": "0",
    }
    with (tmp_path / "said").open("wb") as output:
        server = subprocess.Popen(
            [sys.executable, RECIPES / "verify_webhook.py"],
            cwd=tmp_path,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    try:

        def sent(document, secret="hush"):
            address = f"http://127.0.0.1:{port}/webhooks/verify"
            return httpx.post(address, json=document, headers={"x-webhook-secret": secret}, timeout=20)

        def answered():
            assert server.poll() is None, (tmp_path / "said").read_text()
            with suppress(httpx.TransportError):
                return sent(payload("ORG/results", "discussion.comment")).status_code == 200
            return False

        wait_for(answered)
        assert sent(payload("ORG/results", "discussion"), "guessed").status_code == 403
        assert sent(payload("ORG/results", "discussion"), "").status_code in (401, 403)
        for unrelated_event in (payload("ORG/other", "discussion"), payload("ORG/results", "discussion.comment")):
            assert sent(unrelated_event).json() == {"due": False}
        assert not [name for name in api.list_repo_files("ORG/results", repo_type="dataset") if "results/" in name]
        assert sent(payload("ORG/results", "discussion")).json() == {"due": True}
        wait_for(lambda: any("result.json" in name for name in api.list_repo_files("ORG/results", repo_type="dataset")))
    finally:
        server.kill()
        server.wait()
    shell(steps[-1]["run"], STORE="ORG/results", DATA="ORG/mediconfusion-phantoms", **token)


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.2)


@pytest.mark.exhaustive
def test_a_models_ci_fails_when_its_score_is_too_low(shell, tmp_path):
    build("mediconfusion", out=tmp_path / "data", text_only=True)
    action = yaml.load((RECIPES / "model-ci.yml").read_text(), yaml.BaseLoader)
    [step] = [step["run"] for step in action["jobs"]["score"]["steps"] if step.get("name") == "score"]
    shell(step, MODEL="baseline:oracle", DATA="data")
    with pytest.raises(
        AssertionError, match=r"--fail-under set_accuracy of Always A on mediconfusion: 0\.0 is under 25"
    ):
        shell(step.replace("--out run", "--out other"), MODEL="baseline:always-A", DATA="data")


def test_the_image_installs_what_is_there():
    lines = re.sub(r"\\\n", " ", (RECIPES / "Dockerfile").read_text()).splitlines()
    steps = [line.split(None, 1) for line in lines if line and not line.startswith("#")]
    assert {name for name, _ in steps} <= {"FROM", "ARG", "WORKDIR", "COPY", "RUN", "CMD"}
    copied = {name for step, arguments in steps if step == "COPY" for name in arguments.split()[:-1]}
    assert all((ROOT / name).exists() for name in copied)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = {name.removesuffix("*") for name in project["tool"]["setuptools"]["packages"]["find"]["include"]}
    assert packages | {"pyproject.toml", "constraints.txt", project["project"]["readme"]} <= copied
    [extras] = re.findall(r"ARG EXTRAS=(\S+)", "\n".join(lines))
    assert set(extras.split(",")) <= set(project["project"]["optional-dependencies"])
