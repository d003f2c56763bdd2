"""Times what hostile uploads cost: each file of the tests' corpus is submitted in a fresh process.

    python benchmarks/hostile_uploads.py [--only parquet]

Prints seconds and the most memory (of the process, and of the one that reads Parquet) per file, starting Python and its libraries
included, and the line that was said; a harmless file comes first. Figures: benchmarks/README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

ONE = """
import json, resource, sys, time
from pathlib import Path
start = time.perf_counter()
from dataset_builders.errors import BadInput
from eval_harness.submissions.submit import prepare
loaded = time.perf_counter()
try:
    found = prepare(Path(sys.argv[1]), "mediconfusion", "Model", sys.argv[2])
    said = found.problems[0] if found.problems else "accepted"
except BadInput as error:
    said = str(error)
done = time.perf_counter()
most = [resource.getrusage(who).ru_maxrss // 1024 for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([done - loaded, *most, said]))
"""


def main() -> None:
    from tests.eval_harness.submissions.hostile import FILES
    from tests.eval_harness.submissions.submitting import phantom, responses, write_lines

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    only = parser.parse_args().only
    with tempfile.TemporaryDirectory() as place:
        data = phantom("mediconfusion", Path(place) / "mediconfusion")
        files = {"(harmless)": lambda path: write_lines(path, responses(data)), **FILES}
        rows = []
        for name, write in files.items():
            if only not in name:
                continue
            path = Path(place) / "uploads" / name.replace(" ", "-").replace(":", "")
            path.parent.mkdir(exist_ok=True)
            writer = os.fork()  # in a process of its own: the most memory of a process is handed on to its children
            if writer == 0:
                write(path)
                os._exit(0)
            os.waitpid(writer, 0)
            done = subprocess.run(
                [sys.executable, "-c", ONE, str(path), str(data)], cwd=ROOT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, f"{name}: {done.stderr}"
            seconds, mine, childs, said = json.loads(done.stdout)
            rows.append((seconds, mine, childs))
            print(f"{seconds:7.2f} s {mine:5d} MB {childs:5d} MB  {name:34s} {said.replace(str(path), 'FILE')[:110]}")
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
        print(
            f"{len(rows)} files; at most {max(r[0] for r in rows):.2f} s, {max(r[1] for r in rows)} MB, {max(r[2] for r in rows)} MB"
        )


if __name__ == "__main__":
    main()
