"""Measure speed and size of dataset builds on made-up sources with the shapes of the real ones.

A ProbMed-sized build against the time to copy its image bytes once:

    python benchmarks/dataset_builders/builds.py probmed FOLDER

Time to the first streamed row, and to load `cases` and `questions`:

    python benchmarks/dataset_builders/builds.py reading FOLDER

Bytes on disk against the layout of `push_to_hub`:

    python benchmarks/dataset_builders/builds.py sizes FOLDER

Peak memory of a build from one large TSV:

    python benchmarks/dataset_builders/builds.py gmai FOLDER [GB]

Peak memory of a build of any VQA set from one table (`tsv`, `jsonl`, `parquet`), images of 50 kB:

    python benchmarks/dataset_builders/builds.py vqa FOLDER [SUFFIX] [ROWS]

FOLDER keeps the made-up sources between calls; `reading` and `sizes` need an earlier `probmed`.
Figures: benchmarks/README.md.
"""

import base64
import hashlib
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

IMAGES, PROBMED_QUESTIONS = 6303, 57132


def main() -> None:
    """Run the benchmark named on the command line."""
    benchmark, folder = sys.argv[1], Path(sys.argv[2]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    {"probmed": probmed, "reading": reading, "sizes": sizes, "gmai": gmai, "vqa": vqa}[benchmark](folder)


def probmed_source(folder: Path) -> Path:
    """Write a source of ProbMed's size.

    It has 6,303 different JPEG files of about 60 KB and 57,132 questions.
    """
    source = folder / "probmed-source"
    if (source / "probmed.json").is_file():
        return source
    from PIL import Image

    types = [
        f"{organ}_{modality}" for organ in ("abdomen", "brain", "chest", "spine") for modality in ("ct", "mri", "xray")
    ]
    rng = np.random.default_rng(0)
    rows = []
    kinds = ["modality_gt", "modality_hallu", "body_part_gt", "body_part_hallu", "abnormality"]
    for number in range(IMAGES):
        kind = types[number % 12]
        path = source / "images" / kind / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Coarse blocks plus fine noise: files of a realistic size, no two alike.
        picture = rng.integers(0, 256, (64, 64), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
        noise = rng.integers(0, 64, (512, 512), dtype=np.uint8)
        Image.fromarray(picture // 2 + noise).save(path, quality=62)
        # Spread the remaining questions over the images in pairs, so that the total is exact.
        pairs = (PROBMED_QUESTIONS - 5 * IMAGES) // 2 // IMAGES + (
            number < (PROBMED_QUESTIONS - 5 * IMAGES) // 2 % IMAGES
        )
        pairs_of = [f"entity_{side}_{pair}" for pair in range(pairs) for side in ("gt", "hallu")]
        # An odd remainder leaves one question without a partner.
        single = ["entity_hallu"] if number == 0 and (PROBMED_QUESTIONS - 5 * IMAGES) % 2 else []
        for qa_type in [*kinds, *pairs_of, *single]:
            rows.append(
                {
                    "id": f"{kind}_{number}",
                    "image": f"{kind}/{number}.jpg",
                    "image_type": kind,
                    "qa_type": qa_type,
                    "question": f"Does picture {number} of {kind} show what {qa_type} asks for, as a made-up text of usual length?",
                    "answer": "no" if "hallu" in qa_type else "yes",
                }
            )
    (source / "probmed.json").write_text(json.dumps(rows))
    return source


def floor(source: Path, folder: Path) -> float:
    """Return the seconds to read and hash every image and to copy its bytes into one file."""
    start = time.perf_counter()
    with (folder / "floor.bin").open("wb") as stream:
        for path in sorted(source.rglob("*.jpg")):
            data = path.read_bytes()
            hashlib.sha256(data).hexdigest()
            stream.write(data)
        stream.flush()
        # A build syncs its files too.
        os.fsync(stream.fileno())
    took = time.perf_counter() - start
    (folder / "floor.bin").unlink()
    return took


def probmed(folder: Path) -> None:
    """Measure the build time against `floor`, three times in alternation.

    The build runs in its own process, as when a user runs the command.
    """
    source, out = probmed_source(folder), folder / "probmed"
    floors, builds, inside = [], [], []
    for _ in range(3):
        floors.append(floor(source, folder))
        shutil.rmtree(out, ignore_errors=True)
        start = time.perf_counter()
        # Leave with os._exit: only the build is timed, not the shutdown of the interpreter.
        code = (
            "import time; t=time.perf_counter()\nfrom dataset_builders.build import build\n"
            f"build('probmed', source={str(source)!r}, "
            f"out={str(out)!r})\nprint(time.perf_counter()-t, flush=True); import os; os._exit(0)"
        )
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        builds.append(time.perf_counter() - start)
        inside.append(float(done.stdout))
    low, took = statistics.median(floors), statistics.median(builds)
    print(f"floor {low:.2f} s, build {took:.2f} s ({statistics.median(inside):.2f} s inside), ratio {took / low:.2f}")
    print("floors", [round(value, 2) for value in floors], "builds", [round(value, 2) for value in builds])
    _print_sizes(source, out)


def _print_sizes(source: Path, out: Path) -> None:
    """Print the size of each config relative to the distinct images plus the text."""
    distinct = sum(path.stat().st_size for path in source.rglob("*.jpg"))
    size = {
        path.name: sum(file.stat().st_size for file in path.rglob("*.parquet"))
        for path in out.iterdir()
        if path.is_dir()
    }
    text = size["questions_text"]
    for config in ("questions", "cases"):
        print(
            f"{config}: {size[config] / 1e6:.1f} MB = {size[config] / (distinct + text):.4f} x (distinct images + text)"
        )
    print(f"distinct images {distinct / 1e6:.1f} MB, questions_text {text / 1e6:.1f} MB")


def reading(folder: Path) -> None:
    """Measure the time to the first streamed row, and to load a whole config.

    Each measurement uses a fresh process and an empty cache.
    """
    out = folder / "probmed"
    for config in ("questions", "cases", "questions_text"):
        _timed(
            folder,
            f"first streamed row of {config}",
            f"next(iter(load_dataset({str(out)!r}, {config!r}, streaming=True)['test']))",
        )
    for config in ("cases", "questions"):
        _timed(folder, f"load {config} whole", f"len(load_dataset({str(out)!r}, {config!r})['test'])")


def _timed(folder: Path, label: str, code: str) -> None:
    """Run code that uses `load_dataset` in a new process; print its time and its cache's size."""
    home = folder / "hf-home"
    shutil.rmtree(home, ignore_errors=True)
    script = (
        "import os, time; from datasets import load_dataset; t=time.perf_counter(); "
        f"{code}; print(time.perf_counter()-t, flush=True); os._exit(0)"
    )
    environment = {**os.environ, "HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    cache = sum(path.stat().st_size for path in home.rglob("*") if path.is_file())
    print(f"{label}: {float(done.stdout.split()[-1]):.2f} s, cache {cache / 1e6:.0f} MB", flush=True)
    shutil.rmtree(home, ignore_errors=True)


def sizes(folder: Path) -> None:
    """Measure the size that `Dataset.push_to_hub` would upload.

    It writes each shard with `to_parquet`, so this calls `to_parquet` on the loaded questions.
    """
    out = folder / "probmed"
    _print_sizes(probmed_source(folder), out)
    target = folder / "pushed.parquet"
    script = (
        "from datasets import load_dataset\n"
        # A part is enough for the ratio: the whole file would be ten times the images.
        f"d = load_dataset({str(out)!r}, 'questions')['test'].select(range(5000))\n"
        f"d.to_parquet({str(target)!r})\nprint(len(set(d['image_id'])))"
    )
    environment = {**os.environ, "HF_HOME": str(folder / "hf-home"), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=environment)
    images = int(done.stdout.split()[-1])
    distinct = sum(path.stat().st_size for path in probmed_source(folder).rglob("*.jpg")) / IMAGES * images
    print(f"datasets' own writer, first 5,000 questions ({images} images): {target.stat().st_size / distinct:.2f} x")
    target.unlink()
    shutil.rmtree(folder / "hf-home", ignore_errors=True)


def gmai(folder: Path) -> None:
    """Measure the peak memory of a build from one TSV of the given size (default 2 GB).

    Its images have about 1.4 MB each.
    """
    target_bytes = float(sys.argv[3] if len(sys.argv) > 3 else 2) * 1e9
    source = folder / "gmai-source"
    source.mkdir(exist_ok=True)
    file = source / "GMAI-MMBench_VAL.tsv"
    # Reuse the TSV of an earlier call, unless another size was asked for.
    if not file.is_file() or abs(file.stat().st_size - target_bytes) > 5e6:
        _write_tsv(file, target_bytes)
    out = folder / "gmai"
    shutil.rmtree(out, ignore_errors=True)
    _measure_build(f"'gmai-mmbench', source={str(source)!r}, out={str(out)!r}", file)


def _measure_build(arguments: str, file: Path) -> None:
    """Print time and peak memory of a build in a process of its own."""
    start = time.perf_counter()
    script = f"from dataset_builders.build import build; build({arguments})"
    subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{file.name} {file.stat().st_size / 1e9:.2f} GB: build {time.perf_counter() - start:.0f} s, peak "
        f"resident memory {peak:.0f} MiB"
    )


def vqa(folder: Path) -> None:
    """Peak memory of a build of any set from one table, every row with an image of its own."""
    suffix = sys.argv[3] if len(sys.argv) > 3 else "parquet"
    rows = int(sys.argv[4]) if len(sys.argv) > 4 else 100_000
    file, out = folder / f"questions-{rows}.{suffix}", folder / "vqa"
    if not file.is_file():
        _write_set(file, rows)
    shutil.rmtree(out, ignore_errors=True)
    _measure_build(f"'vqa', name='large', source={str(file)!r}, out={str(out)!r}", file)
    shutil.rmtree(out)


def _write_set(file: Path, rows: int) -> None:
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng, schema = np.random.default_rng(1), None

    def row(number: int) -> dict[str, object]:
        picture = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (224, 224), dtype=np.uint8)).save(picture, "PNG", compress_level=0)
        image = picture.getvalue() if file.suffix == ".parquet" else base64.b64encode(picture.getvalue()).decode()
        text = f"Which of these is seen in picture {number}, and in which part of it?"
        options = {letter: f"finding {letter} of {number % 50}" for letter in "ABCD"}
        return {
            "question": text,
            "image": image,
            "answer": "ABCD"[number % 4],
            "organ": f"organ {number % 30}",
            **options,
        }

    if file.suffix == ".parquet":
        schema = pa.Table.from_pylist([row(0)]).schema
        with pq.ParquetWriter(file, schema) as writer:
            for start in range(0, rows, 1000):
                writer.write_table(pa.Table.from_pylist([row(start + number) for number in range(1000)], schema))
        return
    with file.open("w", encoding="ascii") as stream:
        stream.write("\t".join(row(0)) + "\n" if file.suffix == ".tsv" else "")
        for number in range(rows):
            cells = row(number)
            stream.write(("\t".join(map(str, cells.values())) if file.suffix == ".tsv" else json.dumps(cells)) + "\n")


def _write_tsv(file: Path, target_bytes: float) -> None:
    """Write a TSV of GMAI-MMBench's columns with random images until it has the target size."""
    import io

    from PIL import Image

    rng = np.random.default_rng(1)
    with file.open("w", encoding="ascii") as stream:
        stream.write(
            "index\timage\tquestion\tA\tB\tanswer\tcategory\tclinical vqa "
            "task\tdepartment\tperceptual granularity\tmodality\n"
        )
        index = 0
        while stream.tell() < target_bytes:
            index += 1
            picture = io.BytesIO()
            # Noise hardly compresses, so the size of the files is known.
            Image.fromarray(rng.integers(0, 256, (700, 700, 3), dtype=np.uint8)).save(picture, "PNG", compress_level=1)
            text = base64.b64encode(picture.getvalue()).decode("ascii")
            stream.write(
                f"{index}\t{text}\tWhich "
                f"one?\tfirst\tsecond\t{'AB'[index % 2]}\tk{index % 50}\tCounting\tHematology\tImage Level\tCT\n"
            )


if __name__ == "__main__":
    main()
