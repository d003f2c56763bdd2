"""Check that all honest runs land, unaltered and unflagged. Runs of every kind are generated and submitted to one folder store, each by an
account of its own, then verified.

    python benchmarks/submissions/honest_runs.py --count 358 --seed 1 --through-the-page 20 --hub

`--through-the-page`: so many of them go through the API of a running board's Submit page as well; `--hub`: each through a pull request to a
loopback Hub, accepted by its owner, with the bytes on main compared. Prints those that did not land, and how many were flagged for what.
A seeded part of it is tests/eval_harness/store/test_honest_runs.py.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, constants

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from eval_harness.records.limits import MAX_FILE
from eval_harness.store.submit import submit
from eval_harness.store.verification import accept, verify
from tests.eval_harness.store.honest import Case, cases, datasets, differences, handed_in, run
from tests.leaderboard_space.serving import board
from tests.localhub.accounts import CURATOR, READER
from tests.localhub.server import LocalHub


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=358)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--through-the-page", type=int, default=0)
    parser.add_argument("--hub", action="store_true")
    args = parser.parse_args()
    bad, begun = 0, time.monotonic()
    kinds: Counter[str] = Counter()
    flags: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary, contextlib.ExitStack() as stack:
        folder = Path(temporary)
        data = datasets(folder / "data")
        client, store = None, folder / "page"
        hub = None
        if args.hub:
            hub = stack.enter_context(LocalHub())
            os.environ["HF_ENDPOINT"] = hub.endpoint
            constants.HF_HUB_CACHE, constants.HF_HUB_DISABLE_XET = str(folder / "cache"), True
        if args.through_the_page:
            from gradio_client import Client

            (store / "results").mkdir(parents=True)
            address, _ = stack.enter_context(board(store, folder / "home", list(data.values())))
            client = Client(address, verbose=False)
        for case in cases(args.seed, args.count):
            page = client if case.number % max(1, args.count // max(1, args.through_the_page)) == 0 else None
            wrong = _landed(case, data[case.family], folder, page, hub)
            kinds[case.back_end] += 1
            if wrong:
                bad += 1
                print(f"{case}: {'; '.join(wrong[:3])}", flush=True)
        outcomes = verify(str(folder / "store"), data=[str(path) for path in data.values()])
    for outcome in outcomes:
        if outcome.word not in ("verified", "for a person"):
            bad += 1
            print(outcome)
        flags.update({re.sub(r"[\d,.]+|results/\S+", "N", flag)[:90] for flag in outcome.reasons})
    flagged = sum(outcome.word == "for a person" for outcome in outcomes)
    print(f"{len(outcomes)} stored, {flagged} flagged")
    print(
        f"{args.count - bad} of {args.count} honest runs landed unaltered "
        f"({', '.join(f'{count} {name}' for name, count in kinds.most_common())}; {time.monotonic() - begun:.0f} s)"
    )
    for flag, count in flags.most_common():
        print(f"flagged {count:3d} times: {flag}")
    return 1 if bad else 0


def _landed(case: Case, data: Path, workdir: Path, client: Any, hub: LocalHub | None) -> list[str]:
    """What of a case did not land as it is."""
    folder = workdir / f"case-{case.number}"
    try:
        with Path(os.devnull).open("w") as quiet, contextlib.redirect_stderr(quiet):
            made = run(case, data, folder)
            done = submit(made, workdir / "store", data=str(data), account=f"account-{case.number}")
            wrong = differences(made, Path(done.location))
            if client is not None and (made / "answers.parquet").stat().st_size <= MAX_FILE:
                said = handed_in(made, data, client)
                there = workdir / "page" / said.get("folder", "")
                wrong += differences(made, there) if said["ok"] else [f"the page: {said['problems'][:2]}"]
            if hub is not None:
                wrong += _on_the_hub(made, data, folder / "hub", hub)
    except Exception as error:  # whatever it is, the others are still to be tried
        wrong = [f"{type(error).__name__}: {error}"]
    return wrong


def _on_the_hub(made: Path, data: Path, folder: Path, hub: LocalHub) -> list[str]:
    """What of a run is not on main as it is, once its pull request to a new store was accepted."""
    repo = f"ORG/store-{folder.parent.name}"
    api = HfApi(endpoint=hub.endpoint, token=CURATOR)
    api.create_repo(repo, repo_type="dataset")
    os.environ["HF_TOKEN"] = READER
    done = submit(made, repo, data=str(data))
    os.environ["HF_TOKEN"] = CURATOR
    outcome = accept(f"{repo}@1", data=[str(data)])
    landed = Path(api.snapshot_download(repo, repo_type="dataset", local_dir=folder))
    files = done.submission.files()
    wrong = [f"the Hub: {path} differs" for path, content in files.items() if (landed / path).read_bytes() != content]
    return [*wrong, *differences(made, landed / done.submission.folder)] if outcome.word == "added" else [str(outcome)]


if __name__ == "__main__":
    sys.exit(main())
