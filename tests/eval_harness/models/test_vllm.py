"""One tiny Qwen2.5-VL in transformers, in vLLM's engine and in `vllm serve`: equal texts and
scores.

vLLM's pins conflict with ours, so it has its own environment: MEDPROBE_VLLM is its Python, which
runs this checkout's command line (docs/scaling.md explains how to create it).
"""

import contextlib
import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from dataset_builders.build import build
from tests.eval_harness.models import tiny_families
from tests.processes import free_port

VLLM_PYTHON = os.environ.get("MEDPROBE_VLLM", "")
CHECKOUT = Path(__file__).resolve().parents[3]
ENGINE_OPTIONS = {
    "enforce_eager": True,
    "max_model_len": 2048,
    "max_num_seqs": 16,
    "block_size": 32,
}

pytestmark = [
    pytest.mark.harness,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not VLLM_PYTHON, reason="MEDPROBE_VLLM names no Python that has vLLM"),
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
    build("mediconfusion", out=folder / "data" / "mediconfusion")
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
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine in the process itself starts sooner
    }
    return inherited | quiet | {"PYTHONPATH": str(CHECKOUT), "OPENAI_API_KEY": "x"}


def command(workdir, python, *arguments):
    words = [python, "-m", "medprobe", *arguments]
    return subprocess.run(
        words,
        cwd=workdir,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def answers(workdir, python, name, methods, benchmark="mediconfusion", **model):
    """Run a sweep over methods, which loads the model once; returns method -> question id ->
    record.
    """
    document = {
        "models": [{"max_tokens": 5, **model}],
        "benchmarks": [benchmark],
        "methods": list(methods),
    }
    (workdir / f"{name}.yaml").write_text(yaml.safe_dump(document))
    done = command(workdir, python, "sweep", f"{name}.yaml")
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    records_by_method = {}
    for path in (workdir / "runs" / name).glob("*/answers.jsonl"):
        method = json.loads(path.with_name("run.json").read_text())["request"]["method"]
        records_by_method[method] = {
            line["question_id"]: line for line in map(json.loads, path.read_text().splitlines())
        }
    assert records_by_method.keys() == set(methods)
    return records_by_method


@contextlib.contextmanager
def serving(workdir):
    """Serve the tiny model with vLLM; yields the address."""
    port = free_port()
    # The module behind `vllm serve`, which does not start with the CPU build's distribution name.
    options = "--dtype float32 --enforce-eager --max-model-len 2048 --max-num-seqs 16 --block-size 32 --served-model-name tiny"
    words = [
        VLLM_PYTHON,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--model",
        workdir / "tiny",
        "--port",
        port,
    ]
    with (workdir / "serve.log").open("wb") as log:
        process = subprocess.Popen([*words, *options.split()], env=environment(), stdout=log, stderr=log, cwd=workdir)
        try:
            for _ in range(300):
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
                    break
                assert process.poll() is None, (workdir / "serve.log").read_text()[-3000:]
                time.sleep(1)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            process.wait(60)


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


COMPARED_METHODS = ("mc", "gd", "ps", "ps_official")


def test_vllm_in_process_and_served_equal_transformers(workdir):
    expected = answers(workdir, sys.executable, "transformers", COMPARED_METHODS, model="tiny")
    assert len({line["response"] for line in expected["mc"].values()}) > 3
    in_process = answers(
        workdir,
        VLLM_PYTHON,
        "vllm",
        COMPARED_METHODS,
        model="vllm:tiny",
        dtype="float32",
        engine=ENGINE_OPTIONS,
    )
    # The server runs in vLLM's environment, the harness in ours.
    with serving(workdir) as url:
        served = answers(workdir, sys.executable, "served", COMPARED_METHODS, model="openai:tiny", base_url=url)
    for name, records in (("vLLM in process", in_process), ("vllm serve", served)):
        for method in COMPARED_METHODS:
            all_equal, difference = compared(f"{name}, {method}", expected[method], records[method])
            assert all_equal
            assert difference < 1e-4


def test_vllm_adapter_equals_merged_adapter_in_transformers(workdir):
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
    plain = answers(workdir, sys.executable, "plain", ("ps",), model="tiny")
    merged = answers(workdir, sys.executable, "merged", ("mc", "ps"), model="tiny", adapter="adapter")
    options = {"dtype": "float32", "engine": ENGINE_OPTIONS, "adapter": "adapter"}
    separate = answers(workdir, VLLM_PYTHON, "beside", ("mc", "ps"), model="vllm:tiny", **options)
    # The adapter must matter for the comparison to mean anything.
    assert compared("without the adapter", merged["ps"], plain["ps"])[1] > 0.05
    for method in ("mc", "ps"):
        all_equal, difference = compared(f"adapter, {method}", merged[method], separate[method])
        assert all_equal
        assert difference < 1e-3


def test_only_prompts_longer_than_the_context_fail(workdir):
    methods = ("mc", "gd")
    expected = answers(workdir, sys.executable, "fits", methods, model="tiny")
    small = {"dtype": "float32", "engine": ENGINE_OPTIONS | {"max_model_len": 244}}
    records = answers(workdir, VLLM_PYTHON, "small", methods, model="vllm:tiny", **small)
    for method in methods:
        failed = {key: line for key, line in records[method].items() if line["status"] == "failed"}
        assert 0 < len(failed) < len(expected[method])
        assert all(
            "vLLM rejects the question: " in line["error"] and "244" in line["error"] for line in failed.values()
        )
        fit = records[method].keys() - failed.keys()
        all_equal, difference = compared(
            f"those that fit, {method}",
            *({key: by_method[method][key] for key in fit} for by_method in (expected, records)),
        )
        assert all_equal
        assert difference < 1e-4


def test_missing_vllm_and_invalid_arguments_give_one_line_errors(workdir):
    for python, arguments, words in (
        (sys.executable, ["--model", "vllm:tiny"], "pip install 'medprobe[vllm]'"),
        (VLLM_PYTHON, ["--model", "vllm:tiny", "--thinking", "100"], "--thinking 100"),
        (VLLM_PYTHON, ["--model", "vllm:nowhere"], "cannot be loaded"),
        (VLLM_PYTHON, ["--model", "vllm:tiny", "--model-args", '{"quantization": "int3"}'], "int3"),
    ):
        done = command(workdir, python, "eval", "mediconfusion", *arguments)
        assert done.returncode == 2, done.stderr
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        # vLLM warns of the machine it starts on; before it starts there is our line alone.
        assert done.stderr.count("medprobe: ") == 1 and (done.stderr.count("\n") == 1 or words == "int3")
