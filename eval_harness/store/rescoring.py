"""`medprobe rescore STORE`: derive the outdated results of a store again, and list the changes.

A result is out of date where the key that it names (`derivation.compute_derivation_key`) is not that of its files,
its questions and this version: another
`DERIVE_VERSION`, or a dataset whose answer key or labels were corrected. Where the questions cannot be had, the numbers stay as they are.
What was sent, run ids, accounts and dates stay. What is interrupted goes on with the next call: `result.json`, which names the key, is
written last.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.files import replace_file
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.derivation import compute_derivation_key
from eval_harness.derive.run_files import READINGS_FILE, RESULT_FILE
from eval_harness.records.result import DERIVE_VERSION, Benchmark, Result, read_result
from eval_harness.store.acceptance import read_acceptance
from eval_harness.store.dataset_lookup import Dataset, find_dataset
from eval_harness.store.examine import examine_in_sandbox, read_sent
from eval_harness.store.formatting import format_score
from eval_harness.store.scan import is_hub_store, result_paths


@dataclass(frozen=True)
class RescoreOutcome:
    """Outcome for one result. `changed` of `answers` readings differ now; `moved`: metric -> (before, after), for each that changed.
    `skipped`: why it was left as it is, None where it was derived again or is up to date."""

    folder: str
    headline: str
    changed: int = 0
    answers: int = 0
    moved: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    skipped: str | None = None
    written: bool = False

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.folder}: left as it is: {self.skipped}"
        if not self.written:
            return f"{self.folder}: up to date"
        told = f"{self.folder}: {self.changed:,} of {self.answers:,} answers are read differently"
        order = sorted(self.moved, key=lambda name: name != self.headline)
        most = [
            f"{name} {_format_number(self.moved[name][0])} -> {_format_number(self.moved[name][1])}"
            for name in order[:4]
        ]
        more = f" and {len(order) - 4} more" if len(order) > 4 else ""
        return f"{told}; {', '.join(most) + more if most else 'no score moved'}"


def rescore_store(
    store: str | Path, data: Sequence[str] = (), tell: Callable[[RescoreOutcome], None] = lambda result: None
) -> list[RescoreOutcome]:
    """Derive every result of a store again that is out of date, in the order of their folders.

    `store`: a folder, or ORG/NAME on the Hub, which only its owner can: everything is one commit to main. `data`: datasets (folders or
    repositories) to take questions from: newer ones, or those that the store does not hold.
    Raises BadInput if the store cannot be read or written.
    """
    if is_hub_store(store):
        return _rescore_on_hub(str(store), data, tell)
    root = Path(store)
    found = []
    for path in result_paths(root):
        try:
            found.append(_rescore(root, path, data))
        except OSError as error:
            raise BadInput(f"{root}: cannot be written ({error.strerror}). Give a store you may write to.") from None
        tell(found[-1])
    return found


def _rescore(root: Path, path: Path, data: Sequence[str]) -> RescoreOutcome:
    folder, headline = path.parent, ""
    name = folder.relative_to(root).as_posix()
    try:
        before = read_result(path)
        headline = eval_spec(before.benchmark.family).headline
        if before.kind != "measured":
            return RescoreOutcome(name, headline, skipped=f"it is {before.kind}, no measured result")
        if read_acceptance(folder) is None:  # beside it lie a stranger's files, which only the sandbox reads
            return RescoreOutcome(name, headline, skipped="it is not verified; a board derives its numbers itself")
        sent = read_sent(folder)
        if not data and before.key == compute_derivation_key(
            sent, before.benchmark.fingerprint, before.benchmark.facets
        ):
            return RescoreOutcome(name, headline)
        submission = examine_in_sandbox(
            sent, partial(find_stored_dataset, root, tuple(data), before.benchmark.fingerprint)
        )
        if submission.problems:
            raise BadInput(submission.problems[0])
        if submission.result.key == before.key:
            return RescoreOutcome(name, headline)
    except Unavailable:
        raise
    except (BadInput, OSError, ValueError, KeyError) as error:
        return RescoreOutcome(name, headline, skipped=str(error))
    after = submission.result.model_copy(update={"provenance": before.provenance})
    changed, answers = _count_changed(folder, submission.derived[READINGS_FILE])
    # What was sent is written as it was written anew, so that the key is of these files; result.json last.
    for file, content in (
        submission.sent.content_by_name() | dict(submission.derived) | {RESULT_FILE: after.to_json().encode()}
    ).items():
        replace_file(folder / file, content)
    for path_, content in submission.questions_file().items():
        if not (root / path_).exists():
            (root / path_).parent.mkdir(parents=True, exist_ok=True)
            replace_file(root / path_, content)
    return RescoreOutcome(name, headline, changed, answers, _moved_scores(before, after), written=True)


def find_stored_dataset(root: Path, data: Sequence[str], fingerprint: str | None, benchmark: Benchmark) -> Dataset:
    """The dataset of a stored result: one of `data`, else the questions of this fingerprint that the store keeps, else the revision that
    its run names."""
    path = root / "questions" / f"{fingerprint}.parquet"
    if data or not path.is_file():
        return find_dataset(benchmark, data)
    questions = pd.DataFrame(list(iter_parquet_rows(path)))
    said = benchmark
    return Dataset(
        said.name, said.split, said.family, questions, said.origin, said.selection, ours=True, validated=said.validated,
    )  # fmt: skip


def _format_number(value: float | None) -> str:
    return "none" if value is None else format_score(value)


def _count_changed(folder: Path, readings: bytes) -> tuple[int, int]:
    """The number of answers that are read differently (another choice or status), and their total."""
    names = ["question_id", "sample", "choice", "status"]
    after = table_to_frame(readings)[names]
    try:
        before = table_to_frame((folder / READINGS_FILE).read_bytes())[names]
    except (OSError, ValueError, KeyError):
        return len(after), len(after)
    both = after.merge(before, on=names[:2], suffixes=("", "_before"))
    same = both["status"] == both["status_before"]
    same &= both["choice"].map(list) == both["choice_before"].map(list)
    return len(after) - int(same.sum()), len(after)


def _moved_scores(before: Result, after: Result) -> dict[str, tuple[float | None, float | None]]:
    """The metrics of the previous result whose values have changed or disappeared."""
    now = {name: score.value for name, score in after.scores.items()}
    values = {name: (score.value, now.get(name)) for name, score in before.scores.items()}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _rescore_on_hub(repo_id: str, data: Sequence[str], tell: Callable[[RescoreOutcome], None]) -> list[RescoreOutcome]:
    """The same for a store on the Hub: a copy is derived again, and what changed is one commit on top of exactly what was read."""
    from dataset_builders.hub.client import (
        check_repo_id,
        connect_with_token,
        hide_progress_bars,
        http_status,
        hub_errors,
    )
    from dataset_builders.hub.commits import commit_files

    check_repo_id(repo_id)
    api = connect_with_token()
    with tempfile.TemporaryDirectory() as made, hide_progress_bars():
        with hub_errors(repo_id, "read the store"):
            revision = api.repo_info(repo_id, repo_type="dataset").sha
            copy = api.snapshot_download(
                repo_id, repo_type="dataset", revision=revision, allow_patterns=["results/**", "questions/**"]
            )
        root = Path(made) / "store"
        shutil.copytree(copy, root)  # the cache holds links to files that must not change
        if not (root / "results").is_dir():
            raise BadInput(f"{repo_id}: holds no results.")
        results = rescore_store(root, data, tell)
        written = [root / each.folder for each in results if each.written]
        paths = [path for folder in (*written, root / "questions") for path in folder.glob("*")]
        originals = {path: Path(copy) / path.relative_to(root) for path in paths}
        changed = [
            path
            for path, original in originals.items()
            if not original.exists() or original.read_bytes() != path.read_bytes()
        ]
        if changed:
            files: dict[str, bytes | Path | None] = {path.relative_to(root).as_posix(): path for path in changed}
            with hub_errors(repo_id, "write the results that were derived again"):
                try:
                    commit_files(api, repo_id, files, f"Derived again by version {DERIVE_VERSION}", parent=revision)
                except Exception as error:
                    if http_status(error) != 412:
                        raise
                    raise BadInput(f"{repo_id}: it was changed meanwhile. Run this again.") from None
    return results
