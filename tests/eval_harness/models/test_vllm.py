"""One tiny Qwen2.5-VL in transformers and in `vllm serve`: equal texts and scores.

vLLM's pins conflict with ours, so it has an environment of its own: MEDPROBE_VLLM is the folder
with its command `vllm` (docs/scaling.md explains how to create it). The harness runs in ours.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dataset_builders.build import build
from tests.eval_harness.models import tiny_families

VLLM_FOLDER = os.environ.get("MEDPROBE_VLLM", "")
CHECKOUT = Path(__file__).resolve().parents[3]
BENCHMARKS = ("mediconfusion", "gmai-mmbench", "halt-medvqa")
ENGINE_OPTIONS = {
    "enforce_eager": True,
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "block_size": 32,
}

pytestmark = [
    pytest.mark.harness,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(not VLLM_FOLDER, reason="MEDPROBE_VLLM names no folder with the command vllm"),
]


def wide_qwen():
    """Attention heads of 32, the smallest that vLLM supports on a CPU."""
    qwen = tiny_families.FAMILIES["qwen2_5_vl"]
    vision = {"hidden_size": 64, "intermediate_size": 64, "out_hidden_size": 64}
    text = {"hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2}
    rope = {"rope_parameters": qwen.text["rope_parameters"] | {"mrope_section": [4, 6, 6]}}
    return replace(qwen, text=qwen.text | text | rope, vision=qwen.vision | vision)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("engines")
    for benchmark in BENCHMARKS:
        build(benchmark, out=folder / "data" / benchmark)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(tiny_families.FAMILIES, "wide_qwen", wide_qwen())
        tiny_families.make("wide_qwen", folder / "tiny")
    return folder


def environment():
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR", "HF_HOME") if name in os.environ}
    quiet = {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    }
    paths = {"PYTHONPATH": str(CHECKOUT), "PATH": f"{VLLM_FOLDER}{os.pathsep}{os.environ['PATH']}"}
    return inherited | quiet | paths


def command(workdir, *arguments):
    words = [sys.executable, "-m", "medprobe", *arguments]
    return subprocess.run(
        words,
        cwd=workdir,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2400,
        check=False,
    )


def answers(workdir, name, methods, benchmark="mediconfusion", *, model, **model_args):
    """Run a sweep over methods, which loads the model once; returns method -> question id ->
    record.
    """
    document = {
        "models": [
            {
                "model": model,
                "max_tokens": 5,
                "timeout": 600,
                "model_args": json.dumps({"dtype": "float32", **model_args}),
            }
        ],
        "benchmarks": [benchmark],
        "methods": list(methods),
    }
    (workdir / f"{name}.yaml").write_text(yaml.safe_dump(document))
    done = command(workdir, "sweep", f"{name}.yaml")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    records_by_method = {}
    for path in (workdir / "runs" / name).glob("*/answers.jsonl"):
        method = json.loads(path.with_name("run.json").read_text())["request"]["method"]
        records_by_method[method] = {
            line["question_id"]: line for line in map(json.loads, path.read_text().splitlines())
        }
    assert records_by_method.keys() == set(methods)
    return records_by_method


def compared(name, reference, records):
    """Return (all texts equal, largest difference of an option's score); also printed, for `pytest
    -s`.
    """
    assert reference.keys() == records.keys()
    # A server withholds the bytes of a character cut by the output limit; decoded at once, they
    # become a replacement character.
    equal_texts = sum(
        reference[key]["response"].rstrip("\ufffd") == records[key]["response"].rstrip("\ufffd") for key in reference
    )
    pairs = [
        (a, b)
        for key in reference
        for a, b in zip(reference[key].get("scores", []), records[key].get("scores", []), strict=True)
    ]
    difference = max((abs(a - b) for a, b in pairs), default=0.0)
    print(f"{name}: {equal_texts} of {len(reference)} texts equal; largest difference of a score {difference:.1e}")
    return equal_texts == len(reference), difference


COMPARED_METHODS = ("mc", "gd", "ps")


def wait_until(condition, timeout):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def server_processes():
    """Return the processes of vLLM's servers that the harness has started; they rename
    themselves.
    """
    pids = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if b"VLLM_API_KEY=" in path.read_bytes():
                pids.add(path.parent.name)
    return pids


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_vllm_equals_transformers_by_every_method(workdir, benchmark):
    expected = answers(workdir, f"transformers-{benchmark}", COMPARED_METHODS, benchmark, model="tiny")
    assert len({line["response"] for line in expected["mc"].values()}) > 3
    served = answers(
        workdir,
        f"vllm-{benchmark}",
        COMPARED_METHODS,
        benchmark,
        model="vllm:tiny",
        dtype="float32",
        **ENGINE_OPTIONS,
    )
    wait_until(lambda: not server_processes(), timeout=60)  # the sweep has ended the server
    for method in COMPARED_METHODS:
        all_equal, difference = compared(f"{benchmark}, {method}", expected[method], served[method])
        assert all_equal
        assert difference < 1e-4


def test_adapter_and_pixel_bounds_equal_transformers(workdir):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForImageTextToText

    model = AutoModelForImageTextToText.from_pretrained(workdir / "tiny")
    wide = LoraConfig(
        r=4,
        lora_alpha=64,
        target_modules=r".*language_model.*\.(q_proj|v_proj)",
        init_lora_weights=False,
    )
    get_peft_model(model, wide).save_pretrained(workdir / "adapter")
    options = {"adapter": "adapter", "max_pixels": 56 * 56}
    plain = answers(workdir, "plain", ("ps",), model="tiny")
    merged = answers(workdir, "merged", ("mc", "ps"), model="tiny", **options)
    separate = answers(workdir, "beside", ("mc", "ps"), model="vllm:tiny", **ENGINE_OPTIONS, **options)
    # The options must matter for the comparison to mean anything.
    assert compared("without adapter and bounds", merged["ps"], plain["ps"])[1] > 0.05
    for method in ("mc", "ps"):
        all_equal, difference = compared(f"adapter and bounds, {method}", merged[method], separate[method])
        assert all_equal
        assert difference < 1e-3


def test_only_prompts_longer_than_the_context_fail(workdir):
    methods = ("mc", "gd")
    expected = answers(workdir, "fits", methods, model="tiny")
    records = answers(workdir, "small", methods, model="vllm:tiny", **ENGINE_OPTIONS | {"max_model_len": 244})
    for method in methods:
        failed = {key: line for key, line in records[method].items() if line["status"] == "failed"}
        assert 0 < len(failed) < len(expected[method])
        assert all("244" in line["error"] for line in failed.values())
        fit = records[method].keys() - failed.keys()
        all_equal, difference = compared(
            f"those that fit, {method}",
            *({key: by_method[method][key] for key in fit} for by_method in (expected, records)),
        )
        assert all_equal
        assert difference < 1e-4


def test_a_killed_run_leaves_no_server_and_resumes(workdir):
    arguments = ["eval", "mediconfusion", "--model", "vllm:tiny", "--out", "killed", "--max-tokens", "5"]
    arguments += ["--model-args", json.dumps({"dtype": "float32", **ENGINE_OPTIONS}), "--in-flight", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "medprobe", *arguments],
        cwd=workdir,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    journal = workdir / "killed" / "answers.jsonl"
    wait_until(lambda: journal.is_file() and journal.read_bytes().count(b"\n") >= 2, timeout=300)
    assert server_processes()
    process.kill()
    process.wait()
    wait_until(lambda: not server_processes(), timeout=60)

    lines_before = journal.read_text().splitlines()[:2]
    done = command(workdir, *arguments)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = journal.read_text().splitlines()
    assert lines[:2] == lines_before
    assert len(lines) == len({json.loads(line)["question_id"] for line in lines}) == 28


def test_errors_of_vllm_are_one_line(workdir):
    for arguments, words in (
        (["--model-args", '{"quantization": "int3"}'], "int3"),
        (["--model-args", '{"no_such_flag": 3}'], "no-such-flag"),
        (["--model-args", '{"attn_implementation": "sdpa"}'], "only for transformers"),
        (["--cache", "replies"], "--cache"),
    ):
        done = command(workdir, "eval", "mediconfusion", "--model", "vllm:tiny", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert done.stderr.count("medprobe: ") == 1
        assert "Traceback" not in done.stderr
    wait_until(lambda: not server_processes(), timeout=60)
