"""Write small sources of drawn phantoms in a benchmark's official layout, to try everything
offline.

Each question has one correct answer by construction, and correct letters are balanced. The texts
are original. See also: the drawings (`phantom_drawings.py`), each benchmark's questions
(`benchmarks/*/phantoms.py`).
"""

from pathlib import Path

from dataset_builders.benchmarks import load_benchmark_module
from dataset_builders.files import write_json
from dataset_builders.source_files import ORIGIN_MARKER


def write_sources(family: str, folder: Path) -> None:
    """Write the phantom source of a benchmark; the bytes are the same every time.

    Args:
        family: the benchmark.
        folder: where to write; created if needed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    load_benchmark_module(family, "phantoms").write(folder)
    write_json(folder / ORIGIN_MARKER, {"origin": "phantom"})
