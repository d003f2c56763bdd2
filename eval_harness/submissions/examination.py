"""Examines a submission as a store holds it, result.json and answers.parquet, against questions that we trust.

Everything in it that can be computed is computed again. Not here: where the files come from, and what follows (`verification.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of, has_fingerprint, is_released_set
from dataset_builders.problems import clip
from dataset_builders.repository import Repository, open_repository, text_files
from dataset_builders.revisions import is_released
from eval_harness.results import Benchmark, Result, model_slug, read_result
from eval_harness.runs import Run, RunRequest
from eval_harness.scoring import ANSWERS_SCHEMA, SCHEMA_1_COLUMNS, answer_frame
from eval_harness.store_source import REPOSITORY
from eval_harness.submissions.foreign_files import check_file, parse_object, quarantined
from eval_harness.submissions.submit import MAX_RESULT, Submission, recompute
from eval_harness.submissions.validation import (
    AGAIN,
    JUDGED,
    checked_answers,
    different_results,
    wrong_names,
    wrong_standing,
)

FILES = ("answers.parquet", "result.json")
COMMIT = re.compile(r"[0-9a-f]{40}")
MAX_DATASET = 512 << 20
"""Bytes of the texts of a dataset that a submission names; ProbMed's are about 3 MB."""


@dataclass(frozen=True)
class Dataset:
    """Questions to score by. `ours` when the store's owner vouches for them, by --data or by having released them (main, or a tag)."""

    questions: pd.DataFrame
    format: str
    origin: str | None
    partial: str | None
    ours: bool


def dataset_for(benchmark: Benchmark, data: Sequence[str], owner: str | None) -> Dataset:
    """The dataset that a result names: one of `data` (folders or Hub repositories) of that name, else the named revision on the Hub.

    Raises BadInput when there is none, or it cannot be read within limits.
    """
    dataset = vouched_dataset(benchmark, data)
    if dataset is not None:
        return dataset
    repo, revision = benchmark.repo or "", benchmark.revision or ""
    if not REPOSITORY.fullmatch(repo) or not COMMIT.fullmatch(revision):
        raise BadInput(
            f"names no dataset revision on the Hub (repo {clip(repo)}, revision {clip(revision)}); evaluate on a published dataset, or the "
            "store's owner names the dataset with --data"
        )
    ours = owner is not None and repo.split("/")[0] == owner and is_released(repo, revision)
    if not ours:
        _check_sizes(repo, revision)
    repository = open_repository(repo, revision)
    if repository.name != benchmark.name or benchmark.split not in repository.splits:
        raise BadInput(
            f"{repo} holds {repository.name} ({', '.join(repository.splits)}), not {benchmark.name} {benchmark.split}"
        )
    return _dataset(repository, benchmark.split, ours)


def vouched_dataset(benchmark: Benchmark, data: Sequence[str]) -> Dataset | None:
    """The first of `data` (folders or Hub repositories, all of them trusted) that has the benchmark's split; None where none has."""
    for where in data:
        repository = open_repository(where)
        if repository.name == benchmark.name and benchmark.split in repository.splits:
            return _dataset(repository, benchmark.split, ours=True)
    return None


def _dataset(repository: Repository, split: str, ours: bool) -> Dataset:
    return Dataset(repository.questions(split), repository.format, repository.origin, repository.partial, ours)


def _check_sizes(repo: str, revision: str) -> None:
    """A stranger's dataset is looked at before it is read: its sizes, where its card says the texts are, its Parquet files."""
    from huggingface_hub.hf_api import RepoFile

    from dataset_builders.hub import connect, hub_errors, patiently

    api = connect()

    def tree() -> dict[str, int]:
        entries = api.list_repo_tree(repo, recursive=True, revision=revision, repo_type="dataset")
        return {entry.path: entry.size for entry in entries if isinstance(entry, RepoFile)}

    def fetched(path: str) -> Path:
        return Path(patiently(lambda: api.hf_hub_download(repo, path, revision=revision, repo_type="dataset")))

    with hub_errors(repo, "read the dataset"):
        sizes = patiently(tree)
        about = [path for path in sizes if path in ("README.md", "manifest.json")]
        texts = [path for path in sizes if path.startswith(("questions_text/", "lexical_tree/"))]
        size = sum(sizes[path] for path in (*about, *texts))
        if size > MAX_DATASET or len(texts) > 100 or any(sizes[path] > MAX_RESULT for path in about):
            raise BadInput(f"the dataset {repo} is too large to be read ({size:,} bytes of text in {len(texts)} files)")
        for path in about:
            fetched(path)
        elsewhere = [
            path for path in text_files(fetched(about[0]).parent if about else None, list(sizes)) if path not in texts
        ]
        if elsewhere or not any(path.startswith("questions_text/") for path in texts):
            raise BadInput(
                f"the dataset {repo} has no config questions_text in a folder of that name"
                + (f" (its card names {clip(elsewhere[0], 200)})" if elsewhere else "")
            )
        for path in texts:
            if path.endswith(".parquet"):
                for _ in quarantined(fetched(path)):
                    pass


def examine(
    place: Path,
    folder: str,
    dataset: Dataset | None,
    data: Sequence[str] = (),
    owner: str | None = None,
    reproduced: bool = False,
) -> Submission:
    """Examine the two files in `place`, which are (to be) in the store's `folder`. What is wrong is in `problems`, all at once.

    `dataset` None: the one the result names (see `dataset_for`). `reproduced`: it may say that it was reproduced, since it comes from
    the store's owner. Raises BadInput where nothing can be computed.
    """
    check_file(place / "result.json", MAX_RESULT)
    claimed = read_result(place / "result.json")
    try:
        parse_object((place / "result.json").read_bytes())  # stricter than the schema: no key twice
    except ValueError as error:
        raise BadInput(f"result.json {error}") from None
    run_id = folder.rsplit("/", 1)[-1]
    problems = [*wrong_names(claimed, run_id), *wrong_standing(claimed, reproduced)]
    expected = f"results/{claimed.benchmark.name}/{model_slug(claimed.model.name)}/{run_id}"
    if folder != expected:
        problems.append(f"lies in {clip(folder, 200)}, but its result.json belongs in {clip(expected, 200)}")
    if claimed.method.judge is not None:
        problems.append(JUDGED)
    if problems:
        raise BadInput("; ".join(problems))
    dataset = dataset or dataset_for(claimed.benchmark, data, owner)
    rows = _rows(place / "answers.parquet", problems)
    questions = dataset.questions
    if claimed.benchmark.selection is not None:
        asked = {row.get("question_id") for _, row in rows}
        questions = questions[questions["question_id"].isin(asked)].reset_index(drop=True)
    problems += _wrong_benchmark(claimed.benchmark, dataset, questions)
    if problems:
        raise BadInput("; ".join(problems))
    samples = claimed.method.samples or 1
    records, problems = checked_answers(rows, questions, samples, claimed.method.name)
    run = _run_of(claimed, run_id.removesuffix(AGAIN), samples)
    submission = recompute(run, questions, answer_frame(records), claimed.method.extraction or "ours", problems)
    if claimed.provenance == "reproduced":
        result = submission.result.model_copy(update={"provenance": "reproduced"})
        submission = replace(submission, run_id=run_id, result=result)
    if not problems:
        submission.problems.extend(different_results(claimed, submission.result))
        submission.problems.extend(_misread(rows, submission.answers))
        if claimed.environment.get("permuted") != submission.result.environment.get("permuted"):
            submission.problems.append("its shares of same options and letters are not those of its answers")
    if not dataset.ours and dataset.origin == "official":
        known = is_released_set(dataset.format, claimed.benchmark.split, claimed.benchmark.fingerprint)
        if not known:
            submission.flags.append(
                f"the dataset {claimed.benchmark.repo} calls itself official, and is not of the store's owner"
            )
    if any(row.get("scores") for _, row in rows):
        submission.notes.append("its choices rest on option scores, which are the submitter's word")
    return submission


def _rows(path: Path, problems: list[str]) -> list[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet as pq

    rows = [(f"answers.parquet, row {number}", row) for number, row in enumerate(quarantined(path), 1)]
    there, wanted = pq.read_schema(path), ANSWERS_SCHEMA
    if _columns(there) not in (_columns(wanted), _columns(list(wanted)[:SCHEMA_1_COLUMNS])):
        problems.append(f"answers.parquet has the columns {clip(_columns(there), 300)}, not {_columns(wanted)}")
    return rows


def _columns(schema: Any) -> dict[str, str]:
    """Column -> type; what a list calls its values (item, element) is no difference."""
    return {field.name: re.sub(r"<\w+: ", "<", str(field.type)).replace(" not null", "") for field in schema}


def _wrong_benchmark(claimed: Benchmark, dataset: Dataset, questions: pd.DataFrame) -> Iterator[str]:
    """What a result says of its benchmark that is not so."""
    if questions.empty:
        yield "answers no question of the dataset"
        return
    found = fingerprint_of(questions)
    if not has_fingerprint(questions, claimed.fingerprint):
        yield f"its questions are not those of the dataset (fingerprint {clip(claimed.fingerprint)}, the dataset's {found[:16]}...)"
    for what, theirs, ours in (
        ("format", claimed.format, dataset.format),
        ("origin", claimed.origin, dataset.origin),
        ("questions", claimed.questions, len(questions)),
    ):
        if theirs != ours:
            yield f"says benchmark.{what} = {theirs}, the dataset says {ours}"
    if dataset.partial and claimed.selection is None:
        yield f"a run on a partial dataset ({dataset.partial}) can only land marked as such (benchmark.selection is empty)"


def _run_of(result: Result, run_id: str, samples: int) -> Run:
    """The run behind a stored result, as far as scores depend on it."""
    return Run(
        run_id=run_id,
        request=RunRequest(
            benchmark=result.benchmark.name,
            data=result.benchmark.repo or "",
            split=result.benchmark.split,
            fingerprint=result.benchmark.fingerprint or "",
            model=result.model.name,
            method=result.method.name,
            prompt=result.method.prompt,
            samples=samples,
            generation={},
            permute="permuted" in result.environment,
        ),
        benchmark=result.benchmark,
        model=result.model,
        method=result.method,
        deviations=result.deviations,
        environment=result.environment,
        command=result.command,
        created_at=result.created_at,
    )


def _misread(rows: list[tuple[str, dict[str, Any]]], answers: pd.DataFrame) -> Iterator[str]:
    """Rows whose choice, status or rule is not what their response reads as."""
    read = {
        (str(row["question_id"]), int(row["sample"])): (list(map(int, row["choice"])), row["status"], row["rule"])
        for row in answers.to_dict("records")
    }
    for place, row in rows:
        choice, status, rule = read[row["question_id"], int(row["sample"] or 0)]
        for what, theirs, ours in (("choice", row.get("choice"), choice), ("status", row.get("status"), status)):
            if theirs != ours:
                yield f"{place}: {what} {clip(theirs)}, its response reads as {ours}"
        if row.get("rule") != rule:
            yield f"{place}: rule {clip(row.get('rule'))}, read here by {rule!r} (score it again with this version of medprobe)"
