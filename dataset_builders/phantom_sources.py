"""Write small sources of drawn phantoms in the official layout of a benchmark, so that everything can be tried offline.

Every question has one right answer by construction, and the letters are balanced. The texts are ours. See also: the drawings
(`phantom_drawings.py`), each benchmark's questions (`benchmarks/*/phantoms.py`).
"""

from __future__ import annotations

from pathlib import Path

from dataset_builders.benchmarks import load_benchmark_module
from dataset_builders.files import write_json
from dataset_builders.source_files import ORIGIN_MARKER


def write_sources(family: str, folder: Path) -> None:
    """Write the phantom source of a benchmark into `folder` (made if need be): the same bytes every time."""
    folder.mkdir(parents=True, exist_ok=True)
    load_benchmark_module(family, "phantoms").write(folder)
    write_json(folder / ORIGIN_MARKER, {"origin": "phantom"})
