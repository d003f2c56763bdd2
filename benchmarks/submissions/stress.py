"""Stress-test submissions: many uploads at once, killed writers and verifiers, hostile files.

    python benchmarks/submissions/stress.py --uploads 100 --seed 1

Checks that nothing acknowledged is lost, and measures the memory that `verify` takes:

- folder: processes add runs to one store and are killed at random moments.
- hub (on the loopback interface): many clients open pull requests at once while requests fail;
  then verifiers are killed at random until no pull request is open.
- memory: peak resident memory of all processes of `verify`, for submissions with a hostile
  answers.parquet or run.json (tests/eval_harness/store/untrusted/hostile.py).
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from huggingface_hub import HfApi, constants

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from eval_harness.store.contents import scan_store
from eval_harness.store.submit import build_submission, submit_to_store
from eval_harness.store.verification import verify
from tests.eval_harness.store.submitting import load_questions, make_phantom, response_text, run_folder
from tests.eval_harness.store.untrusted.hostile import FILES, run_jsons
from tests.helpers import write_lines
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.server import LocalHub

ROOT = Path(__file__).resolve().parents[2]
REPO = {"repo_id": "ORG/results", "repo_type": "dataset"}
ADD = """
import sys
from pathlib import Path
from eval_harness.store.submit import submit_to_store
folder, data, numbers = sys.argv[1], sys.argv[2], sys.argv[3].split(",")
for number in numbers:
    done = submit_to_store(Path(f"{folder}/{number}.jsonl"), f"{folder}/store",
                           "mediconfusion", f"Model {number}", data)
    print(done.location, flush=True)
"""
VERIFY = (
    "import sys; from eval_harness.store.verification import verify; verify('ORG/results', True, data=[sys.argv[1]])"
)

EXAMINE = """
import sys
from eval_harness.store.verification import verify
print(*[result.status for result in verify(sys.argv[1], data=[sys.argv[2]])])
"""


def start_child(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Run code in a new Python process."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )  # fmt: skip


def stress_folder(folder: Path, data: Path, uploads: int, draw: random.Random) -> str:
    """Run ten writers at a time and kill four of them, until every run is in the store.

    Every acknowledged run must then be there, complete.
    """
    acknowledged: list[str] = []
    killed = 0
    numbers = list(range(uploads))
    while numbers:
        parts = [numbers[start::10] for start in range(10) if numbers[start::10]]
        running = [start_child(ADD, folder, data, ",".join(map(str, part))) for part in parts]
        for process in draw.sample(running, 4 * len(running) // 10):
            # Kill at any moment from the imports to the last write.
            threading.Timer(draw.uniform(2, 25), process.kill).start()
        for process in running:
            acknowledged += process.communicate()[0].split()
            killed += process.returncode != 0
        stored_models = {stored.result.model.name for stored in scan_store(folder / "store")[0]}
        # Runs whose writer was killed too early are uploaded again.
        numbers = [number for number in numbers if f"Model {number}" not in stored_models]
    stored, problems = scan_store(folder / "store")
    lost = [path for path in acknowledged if not (Path(path) / "result.json").is_file()]
    words = [result.status for result in verify(str(folder / "store"), data=[str(data)])]
    assert not lost and not problems and len(stored) == uploads and set(words) <= {"verified", "for a person"}, (
        lost,
        problems,
    )
    return f"folder: {uploads} uploads, {killed} writers killed, {len(acknowledged)} acknowledged, 0 lost, {len(stored)} whole"


def stress_hub(folder: Path, data: Path, uploads: int, draw: random.Random) -> str:
    """Open all pull requests at once while requests fail, then run verifiers and kill some of them.

    Every acknowledged submission must be on main, byte for byte.
    """
    with LocalHub() as hub:
        os.environ.update(
            HF_ENDPOINT=hub.endpoint,
            HF_TOKEN=READER,
            HF_HUB_DISABLE_XET="1",
            HF_HUB_DISABLE_PROGRESS_BARS="1",
        )
        constants.HF_HUB_CACHE, constants.HF_HUB_DISABLE_XET = str(folder / "cache"), True
        api = HfApi(endpoint=hub.endpoint, token=CURATOR)
        api.create_repo(**REPO)
        for _ in range(uploads // 10):
            # Half of the failures come after the commit was made: a client that retries must not
            # commit twice.
            hub.faults.add("/commit/", draw.choice([503, 429]), method="POST", after=draw.random() < 0.5)

        def one(number: int) -> tuple[str, dict[str, bytes]]:
            path = folder / f"{number}.jsonl"
            done = submit_to_store(path, REPO["repo_id"], "mediconfusion", f"Model {number}", str(data))
            return done.location, done.submission.files()

        with ThreadPoolExecutor(uploads) as pool:
            done = list(pool.map(one, range(uploads)))
        assert len({location for location, _ in done}) == uploads
        os.environ["HF_TOKEN"] = CURATOR
        killed, begun = 0, time.monotonic()
        while any(discussion.status == "open" for discussion in api.get_repo_discussions(**REPO)):
            # Two verifiers compete for the same pull requests, and one of them is killed.
            running = [start_child(VERIFY, data) for _ in range(2)]
            threading.Timer(draw.uniform(8, 30), running[0].kill).start()
            for process in running:
                process.communicate()
                killed += process.returncode < 0
        expected_files = {path: content for _, files in done for path, content in files.items()}
        landed = Path(api.snapshot_download(**REPO, local_dir=folder / "landed"))
        lost = [path for path, content in expected_files.items() if (landed / path).read_bytes() != content]
        stored, problems = scan_store(landed)
        assert not lost and not problems and len(stored) == uploads, (lost, problems, len(stored))
        seconds = time.monotonic() - begun
    return f"Hub: {uploads} pull requests at once, {killed} verifiers killed, 0 lost, {len(stored)} on main ({seconds:.0f} s)"


def resident_bytes(root: int) -> int:
    """Return the resident memory of a process and its descendants, in bytes."""
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
            except OSError:
                # The process ended while it was read.
                continue
    descendants = {root}
    while children := {pid for pid, parent in parents.items() if parent in descendants} - descendants:
        descendants |= children
    return sum(pages.get(pid, 0) for pid in descendants) * os.sysconf("SC_PAGE_SIZE")


def measure_memory(folder: Path, data: Path) -> str:
    """Verify a submission with each hostile file in turn; return a line with the peak memory."""
    ready = build_submission(run_folder(data, folder / "run"))
    place, (valid_run, answers) = (
        folder / "hostile" / ready.folder,
        (ready.sent.run, ready.sent.answers),
    )
    place.mkdir(parents=True)
    (place / "result.json").write_bytes(ready.derived["result.json"])
    peak, worst, words = 0, "", set()
    runs = {f"run.json: {name}": content for name, content in run_jsons(json.loads(valid_run)).items()}
    for name in [*FILES, *runs]:
        for path in (place / "answers.parquet", place / "run.json"):
            # Hostile files include folders and links.
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
        (place / "run.json").write_bytes(runs.get(name, valid_run))
        if name in runs:
            (place / "answers.parquet").write_bytes(answers)
        else:
            FILES[name](place / "answers.parquet")
        # A new process for each file: the peak of one must not count for the next.
        process = start_child(EXAMINE, folder / "hostile", data)
        peak_bytes = 0
        while process.poll() is None:
            peak_bytes = max(peak_bytes, resident_bytes(process.pid))
            time.sleep(0.05)
        words |= set((process.communicate()[0] or "crashed").split())
        if peak_bytes > peak:
            peak, worst = peak_bytes, name
    return f"memory: verify of {len(FILES) + len(runs)} hostile files takes {peak / 1e9:.2f} GB ({worst}); they are {sorted(words)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uploads", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=("folder", "hub", "memory"))
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder, draw = Path(temporary), random.Random(args.seed)
        data = make_phantom("mediconfusion", folder / "mediconfusion")
        for number in range(args.uploads):
            # No two runs are alike: a copy would be held for review.
            right = random.Random(number)
            rows = load_questions(data).itertuples()
            answers = [
                {"question_id": row.question_id, "response": response_text(row, right.random() < 0.6)} for row in rows
            ]
            write_lines(folder / f"{number}.jsonl", answers)
        if args.only in (None, "folder"):
            print(stress_folder(folder, data, args.uploads, draw), flush=True)
        if args.only in (None, "hub"):
            print(stress_hub(folder, data, args.uploads, draw), flush=True)
        if args.only in (None, "memory"):
            print(measure_memory(folder, data), flush=True)


if __name__ == "__main__":
    main()
