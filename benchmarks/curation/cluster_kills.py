"""Kill workers of a local Ray cluster while they work, and compare with an undisturbed run.

`sweep`: evaluate tiny random models of six families on all benchmarks (phantom data). Workers are
killed at random moments, each once there are new answers. Then the same sweep runs without Ray:
every answer must be there once, and the scores must be equal.

`pairs`: search pairs among many images, with workers killed. The pairs must equal those of one
process and of undisturbed workers, which are timed, too.

    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/curation/cluster_kills.py sweep
        --models 6 --kills 10
    OMP_NUM_THREADS=1 PYTHONPATH=. python benchmarks/curation/cluster_kills.py pairs
        --images 40000 --kills 10
"""

import argparse
import json
import resource
import sys
import tempfile
import time
from itertools import cycle
from pathlib import Path

BENCHMARKS = ("mediconfusion", "probmed", "halt-medvqa", "gmai-mmbench")
TIMEOUT = 1800.0
"""Maximum seconds between two kills."""

FAMILIES = ("qwen2_5_vl", "qwen3_vl", "gemma3", "glm4v", "llama4", "llava")


def finish(folder: Path, *arguments: object) -> float:
    """Run a command until it ends; return its seconds."""
    from tests.ray_processes import start

    began = time.perf_counter()
    process = start(sys.executable, folder, *arguments)
    assert process.wait() == 0, (folder / "said").read_text()
    return time.perf_counter() - began


PLUG_IN = """
import hashlib, time
from eval_harness.records.request import Response
from eval_harness.records.result import Model

class Seeded:
    needs_images = False

    def __init__(self, settings):
        self.model = Model(name="seed SEED")

    def generate(self, requests):
        for request in requests:
            time.sleep(0.01)
            drawn = hashlib.sha256(b"SEED" + request.prompt.encode()).digest()[0]
            yield Response(request.question_id, request.sample, "ABCDEFGH"[drawn % len(request.options)], seconds=0.01)
"""
"""A model without torch, so that a killed worker is replaced within a few seconds."""


def answers(folder: Path) -> list[tuple[str, str]]:
    """Return (question id, text) of every answer of a run, sorted."""
    lines = map(json.loads, (folder / "answers.jsonl").read_text().splitlines())
    return sorted((line["question_id"], line["response"]) for line in lines)


def sweep(folder: Path, models: int, kills: int, workers: int, seed: int, plug_ins: bool) -> None:
    """Sweep with Ray and kills, sweep without Ray, and compare scores and answers."""
    import yaml

    from dataset_builders.build import build
    from tests.eval_harness.models.tiny_families import make
    from tests.ray_processes import kill_workers, start

    for name in BENCHMARKS:
        if not (folder / "data" / name).exists():
            build(name, out=folder / "data" / name)
    names = []
    for number, family in zip(range(models), cycle(FAMILIES), strict=False):
        if plug_ins:
            (folder / f"seed_{number}.py").write_text(PLUG_IN.replace("SEED", str(number)))
            names.append(f"seed_{number}.py:Seeded")
        else:
            names.append(f"{family}-{number}")
            if not (folder / names[-1]).exists():
                make(family, folder / names[-1])
    document = {"models": names, "benchmarks": list(BENCHMARKS), "options": {} if plug_ins else {"max_tokens": 5}}
    (folder / "models.yaml").write_text(yaml.safe_dump(document))

    def answered() -> int:
        line_count = 0
        for path in folder.glob("ray/*/answers*.jsonl"):
            # A journal may be merged, and disappear, between the listing and the reading.
            line_count += path.read_bytes().count(b"\n") if path.exists() else 0
        return line_count

    # The reference: the same sweep without Ray.
    calm = finish(folder, "sweep", "models.yaml", "--out", "calm")
    began = time.perf_counter()
    process = start(
        sys.executable, folder, "sweep", "models.yaml", "--out", "ray", "--ray", "local", "--workers", workers
    )
    killed = kill_workers(process, "Worker", kills, seed, answered, TIMEOUT)
    assert process.wait() == 0, (folder / "said").read_text()
    on_ray = time.perf_counter() - began
    assert killed == kills, f"the sweep was over after {killed} kills"
    questions = equal = 0
    tasks = sorted((folder / "calm").glob("*/result.json"))
    assert len(tasks) == models * len(BENCHMARKS)
    for path in tasks:
        ray_run = folder / "ray" / path.parent.name
        assert json.loads((ray_run / "result.json").read_text())["scores"] == json.loads(path.read_text())["scores"]
        ray_answers, local_answers = answers(ray_run), answers(path.parent)
        assert [name for name, _ in ray_answers] == [name for name, _ in local_answers], (
            f"{ray_run}: an answer is missing or there twice"
        )
        questions += len(ray_answers)
        # Not asserted: in a batch of other requests, a tie between tokens may be decided
        # differently.
        equal += sum(
            ray_answer == local_answer for ray_answer, local_answer in zip(ray_answers, local_answers, strict=True)
        )
    print(
        f"sweep of {models} models x {len(BENCHMARKS)} benchmarks ({questions} answers) on "
        f"{workers} Ray workers: {killed} killed; each "
        f"answer once, scores and {equal} texts as without Ray (another batch may decide a tie differently); "
        f"{on_ray:.0f} s with "
        f"the kills, {calm:.0f} s without Ray"
    )


def embeddings(folder: Path, images: int, seed: int) -> None:
    """Write an embeddings folder of two encoders with random vectors (`bench_pairs.synthetic`)."""
    import numpy as np
    import pandas as pd

    from benchmarks.curation.bench_pairs import synthetic
    from curation.mining.embedding import index_sha256

    folder.mkdir()
    draw = np.random.default_rng(seed)
    names = [f"{number:07d}.png" for number in range(images)]
    # Random perceptual hashes: none are alike, so no pair is set aside as a near-duplicate.
    hashes = [f"{value:016x}" for value in draw.integers(0, 2**64, images, dtype=np.uint64)]
    index = pd.DataFrame({"image": names, "sha256": [f"{number:064x}" for number in range(images)], "phash": hashes})
    index.to_parquet(folder / "images.parquet")
    for name, vectors in zip(("med", "gen"), synthetic(images, seed=seed), strict=True):
        np.save(folder / f"{name}-0.npy", vectors)
        about = {"encoder": {"name": name}, "index_sha256": index_sha256(index)}
        (folder / f"{name}-0.json").write_text(json.dumps(about))


def pairs(folder: Path, images: int, kills: int, workers: int, seed: int) -> None:
    """Search pairs in one process, on Ray workers, and with kills; compare the tables."""
    import pandas as pd

    from tests.ray_processes import kill_workers, start

    if not (folder / "embeddings").exists():
        embeddings(folder / "embeddings", images, seed)
    base = ("curate", "pairs", "embeddings", "--med", "med", "--gen", "gen", "--device", "cpu")
    ray = ("--ray", "local", "--workers", workers)
    reference = finish(folder, *base, "--out", "alone")
    calm = finish(folder, *base, *ray, "--out", "ray")
    blocks = folder / "killed" / "blocks"
    process = start(sys.executable, folder, *base, *ray, "--out", "killed")
    killed = kill_workers(process, "Searcher", kills, seed, lambda: len(list(blocks.glob("*.parquet"))), TIMEOUT)
    assert process.wait() == 0, (folder / "said").read_text()
    assert killed == kills, f"the search was over after {killed} kills"
    expected = pd.read_parquet(folder / "alone" / "pairs.parquet")
    for output_name in ("ray", "killed"):
        pd.testing.assert_frame_equal(pd.read_parquet(folder / output_name / "pairs.parquet"), expected)
    print(
        f"{images:,} images: {len(expected):,} pairs; {reference:.0f} s in one process, {calm:.0f} "
        f"s on {workers} workers (Ray's start "
        f"included), the same pairs after {killed} kills"
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["sweep", "pairs"])
    parser.add_argument("--models", type=int, default=6)
    parser.add_argument("--images", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plug-ins", action="store_true", help="sweep: models without torch, for slow machines")
    parser.add_argument("--folder", type=Path, help="keep all files here and reuse those of an earlier call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        folder.mkdir(exist_ok=True)
        if options.what == "sweep":
            sweep(folder, options.models, options.kills, options.workers, options.seed, options.plug_ins)
        else:
            pairs(folder, options.images, options.kills, options.workers, options.seed)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    print(f"peak memory of one process: {peak:.1f} GB")


if __name__ == "__main__":
    main()
