"""`medprobe rescore STORE`: derive the outdated results of a store again, and list the changes.

A result is outdated if its stored key (`derivation.compute_derivation_key`) differs from the one
computed from its files, its questions and this version of medprobe. This happens with another
`DERIVE_VERSION`, or if the dataset's answer key or labels were corrected. If the questions are
unavailable, the result is left as it is. The sent files, run ids, accounts and dates are kept. If a
call is interrupted, the next one continues: of a result's files, `result.json`, which contains the
key, is written last.
"""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.files import replace_file
from dataset_builders.hub.client import (
    check_repo_id,
    commit_files,
    connect_with_token,
    hide_progress_bars,
    http_status,
    hub_errors,
)
from eval_harness.answer_files.untrusted import iter_parquet_rows
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.answer_table import table_to_frame
from eval_harness.derive.derivation import compute_derivation_key
from eval_harness.derive.run_files import READINGS_FILE, RESULT_FILE
from eval_harness.records.result import DERIVE_VERSION, Benchmark, Result, read_result
from eval_harness.store.contents import is_hub_store, read_acceptance, result_paths
from eval_harness.store.dataset_lookup import Dataset, find_dataset
from eval_harness.store.examine import examine_in_sandbox, read_sent
from eval_harness.store.folder_store import add_questions
from eval_harness.store.formatting import format_score


@dataclass(frozen=True)
class RescoreOutcome:
    """Outcome for one result.

    Attributes:
        folder: The result's folder in the store.
        headline: The benchmark's headline metric.
        changed: Number of answers that are now read differently.
        answers: Number of answers.
        moved: Metric -> (before, after), for each changed score.
        skipped: Why the result was left as it is; None if it was derived again or is up to date.
        written: Whether the result was derived again.
    """

    folder: str
    headline: str
    changed: int = 0
    answers: int = 0
    moved: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    skipped: str | None = None
    written: bool = False

    def __str__(self) -> str:
        if self.skipped:
            return f"{self.folder}: unchanged: {self.skipped}"
        if not self.written:
            return f"{self.folder}: up to date"
        changes = f"{self.folder}: {self.changed:,} of {self.answers:,} answers are read differently"
        order = sorted(self.moved, key=lambda name: name != self.headline)
        score_changes = [
            f"{name} {_format_number(self.moved[name][0])} -> {_format_number(self.moved[name][1])}"
            for name in order[:4]
        ]
        suffix = f" and {len(order) - 4} more" if len(order) > 4 else ""
        return f"{changes}; {', '.join(score_changes) + suffix if score_changes else 'no score moved'}"


def rescore_store(
    store: str | Path,
    data: Sequence[str] = (),
    tell: Callable[[RescoreOutcome], None] = lambda result: None,
) -> list[RescoreOutcome]:
    """Derive every outdated result of a store again, in folder order.

    Args:
        store: A folder, or ORG/NAME on the Hub, where all changes are one commit to main by the
            store's owner.
        data: Datasets (folders or repositories) to take questions from, because they are newer or
            because the store does not have them.
        tell: Called with each outcome.

    Returns:
        One outcome per result.

    Raises:
        BadInput: If the store cannot be read or written.
    """
    if is_hub_store(store):
        return _rescore_on_hub(str(store), data, tell)
    root = Path(store)
    outcomes = []
    for path in result_paths(root):
        try:
            outcomes.append(_rescore(root, path, data))
        except OSError as error:
            raise BadInput(f"{root}: cannot be written ({error.strerror}). Give a store you may write to.") from None
        tell(outcomes[-1])

    return outcomes


def _rescore(root: Path, path: Path, data: Sequence[str]) -> RescoreOutcome:
    """Derive one result of a folder store again if it is outdated."""
    folder, headline = path.parent, ""
    name = folder.relative_to(root).as_posix()
    try:
        stored = read_result(path)
        headline = eval_spec(stored.benchmark.family).headline
        if stored.kind != "measured":
            return RescoreOutcome(name, headline, skipped=f"it is {stored.kind}, not measured")
        # Without an acceptance its files are untrusted, and may only be read in the sandbox.
        if read_acceptance(folder) is None:
            return RescoreOutcome(name, headline, skipped="not verified; a board derives its numbers itself")
        sent = read_sent(folder)
        # A cheap check, which is not enough with `data`: the questions may have changed.
        if not data and stored.key == compute_derivation_key(
            sent, stored.benchmark.fingerprint, stored.benchmark.facets
        ):
            return RescoreOutcome(name, headline)
        submission = examine_in_sandbox(
            sent, partial(find_stored_dataset, root, tuple(data), stored.benchmark.fingerprint)
        )
        if submission.problems:
            raise BadInput(submission.problems[0])
        if submission.result.key == stored.key:
            return RescoreOutcome(name, headline)
    except Unavailable:
        raise
    except (BadInput, OSError, ValueError, KeyError) as error:
        return RescoreOutcome(name, headline, skipped=str(error))

    # The provenance is kept: answers do not show whether the store's owner reproduced them.
    rescored = submission.result.model_copy(update={"provenance": stored.provenance})
    changed, answers = _count_changed(folder, submission.derived[READINGS_FILE])

    # result.json, which marks the result as up to date, is written last: an interrupted rescore is
    # repeated.
    add_questions(root, submission)

    # The sent files are rewritten as well, since the key is computed from them.
    for file, content in (
        submission.sent.content_by_name() | dict(submission.derived) | {RESULT_FILE: rescored.to_json().encode()}
    ).items():
        replace_file(folder / file, content)

    return RescoreOutcome(name, headline, changed, answers, _moved_scores(stored, rescored), written=True)


def find_stored_dataset(root: Path, data: Sequence[str], fingerprint: str | None, benchmark: Benchmark) -> Dataset:
    """Find the dataset of a stored result.

    Args:
        root: Folder of the store.
        data: Trusted datasets, which are tried first.
        fingerprint: Fingerprint of the result's questions, by which the store may have them.
        benchmark: The `benchmark` record of the run; its revision on the Hub is tried last.

    Raises:
        BadInput: If there is no such dataset.
    """
    path = root / "questions" / f"{fingerprint}.parquet"
    if data or not path.is_file():
        return find_dataset(benchmark, data)
    questions = pd.DataFrame(list(iter_parquet_rows(path)))
    return Dataset(
        benchmark.name,
        benchmark.split,
        benchmark.family,
        questions,
        benchmark.origin,
        benchmark.selection,
        is_vouched=True,
        validated=benchmark.validated,
    )


def _format_number(value: float | None) -> str:
    """Format a score, or "none"."""
    return "none" if value is None else format_score(value)


def _count_changed(folder: Path, readings: bytes) -> tuple[int, int]:
    """Return how many answers now have another choice or status, and how many there are."""
    names = ["question_id", "sample", "choice", "status"]
    new_readings = table_to_frame(readings)[names]
    try:
        old_readings = table_to_frame((folder / READINGS_FILE).read_bytes())[names]
    except (OSError, ValueError, KeyError):
        return len(new_readings), len(new_readings)

    merged = new_readings.merge(old_readings, on=names[:2], suffixes=("", "_before"))
    is_unchanged = merged["status"] == merged["status_before"]
    is_unchanged &= merged["choice"].map(list) == merged["choice_before"].map(list)
    return len(new_readings) - int(is_unchanged.sum()), len(new_readings)


def _moved_scores(stored: Result, rescored: Result) -> dict[str, tuple[float | None, float | None]]:
    """Return the metrics of the stored result whose values have changed or disappeared."""
    new_values = {name: score.value for name, score in rescored.scores.items()}
    values = {name: (score.value, new_values.get(name)) for name, score in stored.scores.items()}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _rescore_on_hub(repo_id: str, data: Sequence[str], tell: Callable[[RescoreOutcome], None]) -> list[RescoreOutcome]:
    """Rescore a copy of a store on the Hub, and commit the changes.

    The commit is made only if main is still at the commit that was copied.
    """
    check_repo_id(repo_id)
    api = connect_with_token()

    with tempfile.TemporaryDirectory() as workspace, hide_progress_bars():
        with hub_errors(repo_id, "read the store"):
            revision = api.repo_info(repo_id, repo_type="dataset").sha
            snapshot = api.snapshot_download(
                repo_id,
                repo_type="dataset",
                revision=revision,
                allow_patterns=["results/**", "questions/**"],
            )
        root = Path(workspace) / "store"
        # The snapshot links to files of the Hub's cache, which must not change.
        shutil.copytree(snapshot, root)
        if not (root / "results").is_dir():
            raise BadInput(f"{repo_id}: contains no results.")
        outcomes = rescore_store(root, data, tell)
        written_folders = [root / outcome.folder for outcome in outcomes if outcome.written]
        paths = [path for folder in (*written_folders, root / "questions") for path in folder.glob("*")]
        files: dict[str, bytes | Path | None] = {}
        for path in paths:
            original = Path(snapshot) / path.relative_to(root)
            if not original.exists() or original.read_bytes() != path.read_bytes():
                files[path.relative_to(root).as_posix()] = path
        if files:
            with hub_errors(repo_id, "write the results that were derived again"):
                try:
                    commit_files(
                        api,
                        repo_id,
                        files,
                        f"Derived again by version {DERIVE_VERSION}",
                        parent=revision,
                    )
                except Exception as error:
                    # 412: main has moved past the commit that was read.
                    if http_status(error) != 412:
                        raise
                    raise BadInput(f"{repo_id}: the store was changed in the meantime. Run this again.") from None

    return outcomes
