"""Results of another `DERIVE_VERSION` derived again from their stored answers: `medprobe rescore STORE`.

The result before is kept as `history/derived-<version>.json` in its folder, where no board looks. Responses, run ids, accounts and dates
stay as they are; only what was read of the answers and the scores change. A call that was interrupted goes on with the next one: a
result has its new version only once its `result.json` says so, which is written last.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.fingerprints import fingerprint_of
from eval_harness.records.result import DERIVE_VERSION, Result, read_result
from eval_harness.results.store_source import is_hub_store
from eval_harness.results.summary import shown
from eval_harness.runs.scoring import Reread, write_result
from eval_harness.scores import HEADLINE
from eval_harness.submissions.checks.validation import checked_answers
from eval_harness.submissions.examination import computed_again

HISTORY = "history"
JUDGED = "judge: "
"""What the rules of a judge's readings begin with (`judge.py`)."""


@dataclass(frozen=True)
class Rescored:
    """What became of one result. `changed` of `answers` readings are others now; `moved`: metric -> (before, after), for each that moved.
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
            return f"{self.folder}: is up to date"
        told = f"{self.folder}: {self.changed:,} of {self.answers:,} answers are read otherwise"
        order = sorted(self.moved, key=lambda name: name != self.headline)
        most = [f"{name} {_number(self.moved[name][0])} -> {_number(self.moved[name][1])}" for name in order[:4]]
        more = f" and {len(order) - 4} more" if len(order) > 4 else ""
        return f"{told}; {', '.join(most) + more if most else 'no score moved'}"


def _number(value: float | None) -> str:
    return "none" if value is None else shown(value)


def rescore_store(
    store: str | Path,
    data: Sequence[str] = (),
    tell: Callable[[Rescored], None] = lambda outcome: None,
) -> list[Rescored]:
    """Derive every result of a store again that another `DERIVE_VERSION` made; what became of each, in the order of their folders.

    `store`: a folder, or ORG/NAME on the Hub, which only its owner can: everything is one commit to main. `data`: datasets (folders or
    repositories) to take questions from that the store does not hold. Of a run with a judge model the rules read every answer again,
    and the judge's stored readings stay where the rules still read nothing. Left as they are: published numbers, and results without
    answers or questions.
    Raises BadInput when the store cannot be read or written.
    """
    if is_hub_store(store):
        return _rescore_on_hub(str(store), data, tell)
    root = Path(store)
    if not (root / "results").is_dir():
        raise BadInput(f"{root}: not a results store (a folder that contains `results/`). Give the store's folder.")
    outcomes = []
    for path in sorted(root.glob("results/*/*/*/result.json")):
        try:
            outcomes.append(_rescore(root, path, data))
        except OSError as error:
            raise BadInput(f"{root}: cannot be written ({error.strerror}). Give a store you may write to.") from None
        tell(outcomes[-1])
    return outcomes


def _rescore(root: Path, path: Path, data: Sequence[str]) -> Rescored:
    folder, headline = path.parent, ""
    name = folder.relative_to(root).as_posix()
    try:
        before = read_result(path)
        headline = HEADLINE.get(before.benchmark.family, "")
        if before.kind != "measured":
            return Rescored(name, headline, skipped=f"it is {before.kind}, no measured result")
        if before.derive_version == DERIVE_VERSION:
            return Rescored(name, headline)
        if before.derive_version > DERIVE_VERSION:
            newer = f"it has derive_version {before.derive_version}, this medprobe {DERIVE_VERSION}: update medprobe"
            return Rescored(name, headline, skipped=newer)
        after, old, new = read_again(before, folder, questions_of(before, root, data))
    except (BadInput, OSError, ValueError) as error:
        return Rescored(name, headline, skipped=str(error))
    kept = folder / HISTORY / f"derived-{before.derive_version}.json"
    if not kept.exists():
        kept.parent.mkdir(exist_ok=True)
        replace_file(kept, path.read_bytes())
    write_result(folder, after, new)
    changed, moved = _changed(old, new), _moved(before, after)
    return Rescored(name, headline, changed, len(new), moved, written=True)


def questions_of(result: Result, store: Path, data: Sequence[str] = ()) -> pd.DataFrame:
    """The questions that a result was scored by: the store's own, else of one of `data`. Raises BadInput where there are none."""
    fingerprint = result.benchmark.fingerprint
    path = store / "questions" / f"{fingerprint}.parquet"
    if path.is_file():
        return pd.read_parquet(path)
    from eval_harness.submissions.datasets import vouched_dataset

    dataset = vouched_dataset(result.benchmark, data)
    if dataset is not None and fingerprint_of(dataset.questions) == fingerprint:
        return dataset.questions
    raise BadInput("the store does not hold its questions: name the dataset with --data")


def read_again(result: Result, folder: Path, questions: pd.DataFrame) -> tuple[Result, pd.DataFrame, pd.DataFrame]:
    """The result with its answers read by this reader, its answers before, and after. Raises BadInput for answers that are none."""
    old = pd.read_parquet(folder / "answers.parquet")
    rows = [(f"answers.parquet, row {number}", row) for number, row in enumerate(_records(old), 1)]
    samples = result.method.samples or 1
    records, wrong = checked_answers(rows, questions, samples, result.method.name)
    if wrong:
        raise BadInput(f"its answers cannot be read: {wrong[0]}")
    scored, new = computed_again(result, questions, records, _stored_judge(result, old))
    names = ("scores", "breakdown", "statuses", "derive_version", "method")
    changes: dict[str, Any] = {name: getattr(scored, name) for name in names}
    if "permuted" in scored.environment:
        changes["environment"] = result.environment | {"permuted": scored.environment["permuted"]}
    return result.model_copy(update=changes), old, new


def _stored_judge(result: Result, stored: pd.DataFrame) -> Reread | None:
    """The judge of a run as its stored readings have it: nobody is asked anew. A free-form answer keeps the judge's reading; any other
    keeps it where the rules still read nothing. What the rules read before and do not read now, no judge has seen: `not_asked`."""
    said = result.method.judge
    if said is None:
        return None
    free_form = result.method.name == "ff"
    judged = {
        (str(row["question_id"]), int(row["sample"])): row
        for row in stored.to_dict("records")
        if str(row["rule"]).startswith(JUDGED)
    }

    def reread(answers: pd.DataFrame, questions: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, Any]]:
        keys = [(str(q), int(s)) for q, s in zip(answers["question_id"], answers["sample"], strict=True)]
        unread = [free_form or status == "irrelevant" for status in answers["status"]]
        kept = [judged.get(key) if is_unread else None for key, is_unread in zip(keys, unread, strict=True)]
        done = answers.copy()
        for name in ("choice", "status", "rule"):
            values = [own if row is None else row[name] for own, row in zip(answers[name].tolist(), kept, strict=True)]
            done[name] = pd.Series(
                [list(v) for v in values] if name == "choice" else values, index=done.index, dtype=object
            )
        asked = sum(row is not None for row in kept)
        report = said | {
            "asked": asked,
            "share": round(100 * asked / len(answers), 4) if len(answers) else 0.0,
            "decided": sum(row is not None and len(row["choice"]) > 0 for row in kept),
            "not_asked": sum(
                row is None and status == "irrelevant" for row, status in zip(kept, answers["status"], strict=True)
            ),
        }
        return done, report

    return reread


def _records(answers: pd.DataFrame) -> list[dict[str, object]]:
    import pyarrow as pa

    records: list[dict[str, object]] = pa.Table.from_pandas(answers, preserve_index=False).to_pylist()
    return records


def _changed(old: pd.DataFrame, new: pd.DataFrame) -> int:
    """How many answers are read otherwise: another choice or another status."""

    def readings(answers: pd.DataFrame) -> dict[tuple[str, int], tuple[tuple[int, ...], str]]:
        return {
            (str(question), int(sample)): (tuple(int(option) for option in choice), str(status))
            for question, sample, choice, status in zip(
                answers["question_id"], answers["sample"], answers["choice"], answers["status"], strict=True
            )
        }

    before, after = readings(old), readings(new)
    return sum(before.get(key) != reading for key, reading in after.items())


def _moved(before: Result, after: Result) -> dict[str, tuple[float | None, float | None]]:
    """The metrics of the result before whose values are others now, or none."""
    now = {name: score.value for name, score in after.scores.items()}
    values = {name: (score.value, now.get(name)) for name, score in before.scores.items()}
    return {name: pair for name, pair in values.items() if pair[0] != pair[1]}


def _rescore_on_hub(repo_id: str, data: Sequence[str], tell: Callable[[Rescored], None]) -> list[Rescored]:
    """The same for a store on the Hub: a copy is read again, and what changed is one commit on top of exactly what was read."""
    from dataset_builders.hub.client import check_repo_id, connect_with_token, hub_errors, quiet, with_retries
    from dataset_builders.hub.commits import commit_files
    from eval_harness.submissions.stores.hub_store import files_at, holds_content

    check_repo_id(repo_id)
    api = connect_with_token()
    with tempfile.TemporaryDirectory() as made, quiet():
        with hub_errors(repo_id, "read the store"):
            revision = api.repo_info(repo_id, repo_type="dataset").sha
            copy = api.snapshot_download(
                repo_id, repo_type="dataset", revision=revision, allow_patterns=["results/**", "questions/**"]
            )
        root = Path(made) / "store"
        shutil.copytree(copy, root)  # the cache holds links to files that nobody may change
        if not (root / "results").is_dir():
            raise BadInput(f"{repo_id}: holds no results.")
        outcomes = rescore_store(root, data, tell)
        changed = [
            path
            for outcome in outcomes
            if outcome.written
            for path in (root / outcome.folder).rglob("*")
            if path.is_file() and (path.name in ("result.json", "answers.parquet") or path.parent.name == HISTORY)
        ]
        if changed:
            with hub_errors(repo_id, "write the results that were read again"):
                files: dict[str, bytes | Path | None] = {path.relative_to(root).as_posix(): path for path in changed}
                message = f"Answers derived again (derive_version {DERIVE_VERSION})"

                def landed() -> bool | None:
                    head = str(api.repo_info(repo_id, repo_type="dataset").sha)
                    if head == revision:
                        return None
                    there = files_at(api, repo_id, head, list(files))
                    if all(holds_content(api, repo_id, head, there.get(p), (root / p).read_bytes()) for p in files):
                        return True
                    raise BadInput(f"{repo_id}: somebody else changed it meanwhile. Run this again.")

                with_retries(lambda: bool(commit_files(api, repo_id, files, message, parent=revision)), look=landed)
    return outcomes
