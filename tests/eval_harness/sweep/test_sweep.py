"""`medprobe sweep`: tasks run, killed, resumed and reported, here and on a local Ray cluster; bad
files give one line and exit code 2.
"""

import inspect
import json
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml

from dataset_builders.build import build
from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.models.load import CachingLoader
from eval_harness.runs.config import OPTION_TYPES, build_config
from eval_harness.runs.run_folder import lock_is_free, read_answer_journal
from eval_harness.sweep.execution import PROCESS_DIED
from eval_harness.sweep.tasks import find_task, forecast_tasks, format_forecast, read_sweep, remaining_hours
from medprobe.commands.evaluate import run_model
from tests.chaos import warm
from tests.commands import medprobe
from tests.environments import environment
from tests.processes import output_of
from tests.ray_processes import RAY, kill_workers, start

DYING_PLUG_IN = """
import os
from eval_harness.records.request import Response

class Model:
    needs_images = False
    def __init__(self, settings): pass
    def generate(self, requests):
        for request in requests:
            if os.path.exists("die"):
                os._exit(9)
            yield Response(request.question_id, request.sample, "A", seconds=1.8)
"""


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    """A user's folder: two datasets and a plug-in model."""
    folder = tmp_path_factory.mktemp("sweep")
    for name in ("mediconfusion", "probmed"):
        build(name, out=folder / "data" / name)
    (folder / "own.py").write_text(DYING_PLUG_IN)
    return folder


def write(workdir, name="models.yaml", **document):
    (workdir / name).write_text(yaml.safe_dump(document))
    return name


def results(workdir, out):
    table = pd.read_csv(workdir / out / "results.csv")
    return table[table["facet"].isna()].set_index(["model", "benchmark", "metric"])["value"].sort_index()


@pytest.mark.exhaustive
def test_sweep_survives_a_dying_model_and_resumes_to_the_scores_of_single_runs(workdir):
    benchmarks = [{"benchmark": "probmed", "limit": 9}]
    file = write(workdir, models=["own.py:Model", "baseline:always-A"], benchmarks=benchmarks)
    # While this file exists, the model's process ends at the first question.
    (workdir / "die").touch()
    done = medprobe("sweep", file, cwd=workdir, code=2)
    assert f"failed: task 1 (own.py:Model, probmed, mc): {PROCESS_DIED}" in done.stdout
    assert "1 of 2 tasks are done. To resume: medprobe sweep models.yaml --out runs/models" in done.stdout
    (workdir / "die").unlink()
    medprobe("sweep", file, "--task", 1, "--first", 5, cwd=workdir)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(workdir)
        expected = forecast_tasks(read_sweep(Path(file), Path("runs/models")))
    remaining = len(expected[0].plan.instances) - 5
    assert [len(forecast.waiting) for forecast in expected] == [remaining, 0]
    assert remaining_hours(expected[0], expected) == pytest.approx(1.8 * remaining / 3600)
    assert "of 2 tasks are done" not in medprobe("sweep", file, cwd=workdir).stdout
    for number in (1, 2):  # in this process, as an element of a Slurm array
        medprobe("sweep", file, "--out", "array", "--task", number, cwd=workdir)
    medprobe("sweep", file, "--out", "array", cwd=workdir)
    pd.testing.assert_series_equal(results(workdir, "array"), results(workdir, "runs/models"))
    for path in (workdir / "runs").rglob("answers.jsonl"):
        keys = [(record["question_id"], record["sample"]) for record in read_answer_journal(path)]
        assert len(keys) == len(set(keys)) > 0


STUCK_PLUG_IN = """
import time
from pathlib import Path
from eval_harness.records.request import Response

class Model:
    needs_images = False
    def __init__(self, settings): pass
    def generate(self, requests):
        yield Response(requests[0].question_id, requests[0].sample, "A")
        while not Path("go").exists():
            time.sleep(0.1)
        yield from (Response(each.question_id, each.sample, "B") for each in requests[1:])
"""


@pytest.mark.exhaustive
def test_killing_a_sweep_ends_its_model_process(workdir):
    """Otherwise the model would stay in memory and the run folder locked."""
    (workdir / "stuck.py").write_text(STUCK_PLUG_IN)
    file = write(workdir, "stuck.yaml", models=["stuck.py:Model"], benchmarks=["mediconfusion"])
    process = warm.start(["sweep", file], workdir)

    def until(reached, timeout=100):
        while not reached() and timeout > 0:
            time.sleep(0.05)
            timeout -= 0.05
        assert reached(), process.output_file.read_text()

    # Wait until the model has answered once and is stuck.
    until(lambda: [path for path in (workdir / "runs/stuck").glob("*/answers.jsonl") if path.stat().st_size])
    [lock] = (workdir / "runs/stuck").glob("*/.rank0of1.lock")
    assert not lock_is_free(lock)
    process.kill()
    process.wait()
    # The lock belongs to the model's process, not to the killed parent.
    until(lambda: lock_is_free(lock))
    (workdir / "go").touch()
    medprobe("sweep", file, cwd=workdir)
    records = read_answer_journal(next((workdir / "runs/stuck").glob("*/answers.jsonl")))
    assert [record["response"] for record in records] == ["A", "A", *["B"] * 26]


def test_impossible_tasks_are_reported_before_any_question(workdir):
    file = write(
        workdir,
        models=["baseline:chance"],
        benchmarks=["halt-medvqa", "probmed"],
        methods=["mc", "gd"],
    )
    done = medprobe("sweep", file, "--dry-run", cwd=workdir)
    assert "failed: task 1 (baseline:chance, halt-medvqa, mc): --data: no folder" not in done.stdout
    assert "failed: tasks 1, 2: --data: no folder data/halt-medvqa" in done.stdout
    assert "--method gd: baseline:chance cannot score options" in done.stdout
    assert not (workdir / "runs" / "chance").exists()
    done = medprobe("sweep", file, "--slurm", cwd=workdir)
    assert "#SBATCH --array=3\n" in done.stdout
    assert done.stderr.count("is left out: ") == 3
    done = medprobe("sweep", file, "--task", 3, "--dry-run", cwd=workdir)
    assert "in all: " in done.stdout and "0 of 1 tasks are done" in done.stdout


@pytest.mark.parametrize(("methods", "sent"), [(["mc"], 1), (["gd"], 1), (["ps"], 2), (["ff"], 1)])
def test_forecast_counts_requests_sent_to_a_server(workdir, methods, sent):
    model = {
        "model": "openai:m",
        "price": "2.5,10",
        **({"judge": "openai:j"} if methods == ["ff"] else {}),
    }
    file = write(workdir, "server.yaml", models=[model], benchmarks=["mediconfusion"], methods=methods)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(workdir)
        [forecast] = forecast_tasks(read_sweep(Path(file), Path("runs/server")))
    table = format_forecast([forecast])
    assert forecast.size.requests == 28 * sent
    assert f"in all: {28 * sent} requests" in table
    assert ("may use 16,384 tokens per answer" in table) == (methods in (["mc"], ["ff"]))
    assert ("requests to the judge" in table) == (methods == ["ff"])


BAD_SWEEP_FILES = {
    "not YAML": "models: [a",
    "valid list": "models: org/model\nbenchmarks: [probmed]",
    "benchmarks: List should have": "models: [a]\nbenchmarks: []",
    "modles: Extra": "modles: [a]\nmodels: [a]\nbenchmarks: [probmed]",
    "batch: not an option": "models: [{model: a, batch: 3}]\nbenchmarks: [probmed]",
    "out: not an option": "models: [{model: a, out: b}]\nbenchmarks: [probmed]",
    "method: not an option": "models: [{model: a, method: gd}]\nbenchmarks: [probmed]",
    "a mapping must contain 'model'": "models: [{name: a}]\nbenchmarks: [probmed]",
    "models.1": "models: [a, 3]\nbenchmarks: [probmed]",
    "limit": "models: [a]\nbenchmarks: [{benchmark: probmed, limit: few}]",
    "--method cot": "models: [a]\nbenchmarks: [probmed]\nmethods: [cot]",
    "--price 2": "models: [{model: a, price: '2'}]\nbenchmarks: [probmed]",
    "--generation": "models: [{model: a, generation: {n: 2}}]\nbenchmarks: [probmed]",
    "--model-args: dtype": "models: [{model: a, model_args: {dtype: 3}}]\nbenchmarks: [probmed]",
    "the same run": "models: [a, {model: a, batch_size: 4}]\nbenchmarks: [probmed]",
}


@pytest.mark.parametrize("words", BAD_SWEEP_FILES)
def test_bad_sweep_file_gives_a_one_line_error(tmp_path, words):
    (tmp_path / "bad.yaml").write_text(BAD_SWEEP_FILES[words])
    done = medprobe("sweep", "bad.yaml", cwd=tmp_path, code=2)
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_sweep_accepts_every_option_of_eval_with_the_same_type():
    parameters = inspect.signature(run_model, eval_str=True).parameters.values()
    declared = {
        parameter.name: getattr(parameter.annotation, "__origin__", parameter.annotation) for parameter in parameters
    }
    for name in ("dry_run", "no_resume", "arms", "all_metrics", "output", "quiet", "fail_under"):
        del declared[name]  # options that do not affect a run's answers
    assert declared == OPTION_TYPES
    defaults = {
        parameter.name: parameter.default for parameter in parameters if parameter.default is not parameter.empty
    }
    needed = {"benchmark": "mediconfusion", "model": "baseline:chance"}
    assert build_config({**defaults, **needed}, []) == build_config(needed, [])


def test_more_specific_sweep_entries_take_precedence(tmp_path):
    write(
        tmp_path,
        models=[
            {"model": "a", "thinking": False, "generation": {"top_k": 4}, "batch-size": 8},
            "b",
        ],
        benchmarks=[{"benchmark": "probmed", "limit": 5, "facet": ["modality=CT", "modality=MRI"]}],
        methods=[{"method": "mc", "permute": True}],
        options={"limit": 7, "model_args": {"dtype": "float32"}},
    )
    config_a, config_b = (task.config for task in read_sweep(tmp_path / "models.yaml", tmp_path / "out"))
    assert (config_a.limit, config_a.permute, config_a.facets) == (
        5,
        True,
        ("modality=CT", "modality=MRI"),
    )
    assert config_a.settings == Settings(thinking="off", generation={"top_k": 4}, batch_size=8, dtype="float32")
    assert config_b.settings == Settings(dtype="float32")


def test_options_that_affect_no_answer_leave_the_folder_name_unchanged(tmp_path):
    folders = set()
    args = {"model_args": {"device_map": "auto", "tensor_parallel_size": 2}}
    for extra in (
        {"model_args": {}},
        {"batch_size": 3, **args},
        {"in_flight": 2, "price": "1,2", "timeout": 3, **args},
    ):
        write(tmp_path, models=[{"model": "openai:a", **extra}], benchmarks=["probmed"])
        folders |= {task.folder for task in read_sweep(tmp_path / "models.yaml", tmp_path)}
    # One folder for all, so a change mid-sweep repeats nothing.
    assert len(folders) == 1


def test_slurm_array_elements_run_their_tasks_after_the_file_changes(workdir):
    file = write(workdir, models=["own.py:Model", "baseline:always-B"], benchmarks=["mediconfusion"])
    script = medprobe("sweep", file, "--out", "cluster", "--slurm", cwd=workdir).stdout
    assert "#SBATCH --array=1,2\n" in script
    assert f'srun medprobe sweep {file} --out cluster --task "${{TASKS[$SLURM_ARRAY_TASK_ID]}}"' in script
    folder_names = {}
    for number in (1, 2):
        echo = f"srun() {{ echo ${{@: -1}}; }}\nSLURM_ARRAY_TASK_ID={number}\n{script}"
        folder_names[number] = output_of(["bash", "-c", echo]).strip()
    before_change = {task.number: task.folder for task in read_sweep(workdir / file, Path("cluster"))}
    write(
        workdir,
        models=["baseline:chance", "baseline:always-B", "own.py:Model"],
        benchmarks=["mediconfusion"],
    )
    changed = read_sweep(workdir / file, Path("cluster"))
    assert {number: find_task(changed, name, file).folder for number, name in folder_names.items()} == before_change
    with pytest.raises(BadInput, match=r"--task 4: .* 1 to 3\. The file may have changed"):
        find_task(changed, "4", file)


def test_cached_model_is_reused_with_its_deviations_reset():
    events = []

    def load_model(model, settings):
        events.append(f"load {model}")
        return SimpleNamespace(is_local=True, deviations=["told"], close=lambda: events.append(f"close {model}"))

    load = CachingLoader(load_model)
    backend = load("a", Settings())
    backend.deviations.append("met on the way")
    assert load("a", Settings()) is backend and backend.deviations == ["told"]
    for model, settings in (("a", Settings(dtype="float16")), ("b", Settings()), ("a", Settings())):
        assert load(model, settings) is not backend
    # Only the most recent model is kept.
    assert events == ["load a", "close a", "load a", "close a", "load b", "close b", "load a"]


SLOW_PLUG_IN = """
import hashlib, os, time
from eval_harness.records.request import Response

class Model:
    needs_images = False
    def __init__(self, settings): pass
    def generate(self, requests):
        for request in requests:
            time.sleep(0.25)  # slow enough that four kills come before the end
            with open(f"asked.{os.getpid()}", "a") as file:
                file.write(request.question_id + "\\n")
            yield Response(request.question_id, request.sample, "AB"[hashlib.sha256(request.prompt.encode()).digest()[0] % 2])
"""


@pytest.fixture(scope="module")
def ray_python(request):
    return environment(request.config.cache, "ray", RAY)


def write_sweep(folder, models, benchmarks=("mediconfusion",)):
    """Write `models.yaml`, with the datasets and the plug-ins that it names."""
    for benchmark in benchmarks:
        build(benchmark, out=folder / "data" / benchmark)
    for name, text in models.items():
        if text:
            (folder / name.partition(":")[0]).write_text(text)
    write(folder, models=list(models), benchmarks=list(benchmarks))


def lines(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.rglob("answers*.jsonl"))


@pytest.mark.harness
@pytest.mark.timeout(600)
def test_killed_workers_lose_and_repeat_no_answer(ray_python, tmp_path):
    models = dict.fromkeys(("one.py:Model", "two.py:Model"), SLOW_PLUG_IN)
    write_sweep(tmp_path, models, ("mediconfusion", "probmed"))
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "local", "--out", "ray")
    killed = kill_workers(process, "Worker", 4, 0, lambda: lines(tmp_path / "ray"), timeout=120)
    assert process.wait(300) == 0, (tmp_path / "said").read_text()
    assert killed == 4, (tmp_path / "said").read_text()
    medprobe("sweep", "models.yaml", "--out", "calm", cwd=tmp_path)
    for calm in sorted((tmp_path / "calm").glob("*/result.json")):
        ray_folder = tmp_path / "ray" / calm.parent.name
        assert json.loads((ray_folder / "result.json").read_text())["scores"] == json.loads(calm.read_text())["scores"]
        answered = pd.DataFrame(map(json.loads, (ray_folder / "answers.jsonl").read_text().splitlines()))
        expected = pd.read_json(calm.parent / "answers.jsonl", lines=True)
        assert answered["question_id"].is_unique
        assert set(answered["question_id"]) == set(expected["question_id"])
        assert not list(ray_folder.glob("answers.rank*"))


@pytest.mark.harness
@pytest.mark.timeout(600)
def test_question_that_kills_every_worker_fails_only_its_task(ray_python, tmp_path):
    # Ray restarts the worker, which meets the same question again.
    loop = "        for request in requests:"
    dies = f"{loop}\n            if request.question_id.endswith('5-1'):\n                os._exit(1)"
    write_sweep(tmp_path, {"bad.py:Model": SLOW_PLUG_IN.replace(loop, dies), "good.py:Model": SLOW_PLUG_IN})
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "local", "--out", "ray")
    assert process.wait(300) == 2
    output = (tmp_path / "said").read_text()
    assert "5 workers died on question" in output and "Traceback" not in output
    assert "1 of 2 tasks are done" in output
    records = [
        json.loads(line)
        for path in (tmp_path / "ray").glob("*bad*/answers*.jsonl")
        for line in path.read_text().splitlines()
    ]
    assert 0 < len(records) == len({record["question_id"] for record in records})


@pytest.mark.harness
@pytest.mark.timeout(600)
def test_unreachable_cluster_gives_a_one_line_error(ray_python, tmp_path):
    write_sweep(tmp_path, {"baseline:chance": None})
    process = start(ray_python, tmp_path, "sweep", "models.yaml", "--ray", "127.0.0.1:1")
    assert process.wait(200) == 2
    assert "no cluster can be reached" in (tmp_path / "said").read_text()


def test_missing_ray_gives_a_one_line_error(tmp_path):
    write_sweep(tmp_path, {"baseline:chance": None})
    error_output = medprobe("sweep", "models.yaml", "--ray", "local", cwd=tmp_path, code=2).stderr
    assert "pip install 'medprobe[ray]'" in error_output
