"""`medprobe submit`: from a run folder, a ready folder, or another harness's file of answers, to a submission that is added to a store.

Only answers are taken from the submitter: scores are computed here, and a claimed one that differs refuses the submission.
Not here: what is checked (`validation.py`), where it goes (`folder_store.py`, `hub_store.py`), checking others' (`verification.py`).
"""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import pandas as pd
from pydantic import ValidationError

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of, has_fingerprint
from dataset_builders.problems import SHOWN
from dataset_builders.repository import open_repository
from eval_harness.results import Benchmark, Method, Model, Result, model_slug, read_result
from eval_harness.runs import Run, RunRequest, read_run
from eval_harness.scoring import answer_frame, make_result, without_judge, write_result
from eval_harness.selection import Selection, select_questions
from eval_harness.store_source import REPOSITORY, is_hub_store
from eval_harness.submissions.foreign_files import Found, check_file, json_lines, printable, quarantined
from eval_harness.submissions.predictions import read_predictions
from eval_harness.submissions.validation import (
    AGAIN,
    JUDGED,
    checked_answers,
    different_claims,
    implausible,
    wrong_names,
    wrong_standing,
)

T = TypeVar("T")
MAX_RESULT = 8 << 20
"""Bytes of a result.json or run.json. The largest honest one (GMAI-MMBench with all its facets) is under one million."""
ELSEWHERE = "answers were given by another harness; its prompt and generation settings are not known"
RUN_IT = (
    "Run the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run folder, or leave --reproduced out."
)


@dataclass(frozen=True)
class Submission:
    """A result recomputed from its answers, ready to be stored. `problems` refuse it; `flags` are for a human to look at."""

    run_id: str
    result: Result
    answers: pd.DataFrame
    questions: pd.DataFrame
    problems: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def folder(self) -> str:
        """Where it lies in a store."""
        return f"results/{self.result.benchmark.name}/{model_slug(self.result.model.name)}/{self.run_id}"

    def files(self) -> dict[str, bytes]:
        """Its files by their paths in a store; the same bytes for the same submission."""
        with tempfile.TemporaryDirectory() as place:
            write_result(Path(place), self.result, self.answers)
            return {
                f"{self.folder}/{name}": (Path(place) / name).read_bytes()
                for name in ("answers.parquet", "result.json")
            }

    def check(self, what: Path, remedy: str = "Nothing was submitted.") -> None:
        """Raise BadInput with all problems in one line, or return if there are none."""
        if self.problems:
            inside = [line.removeprefix(f"{what}, ").removeprefix(f"{what}: ") for line in self.problems[:SHOWN]]
            shown = "; ".join(inside)
            more = len(self.problems) - SHOWN
            count = "" if len(self.problems) == 1 else f"{len(self.problems)} problems: "
            rest = f"; and {more} more (--dry-run lists them)" if more > 0 else ""
            if "result.json claims" in shown:
                remedy += f" `medprobe score {what}` computes result.json again; or find out what changed it."
            raise BadInput(f"{what}: {count}{shown}{rest}. {remedy}")


@dataclass(frozen=True)
class Submitted:
    """Where a submission went: a folder of this machine, or the address of a pull request. `new` is False when it was there already."""

    submission: Submission
    place: str
    new: bool


def submit(
    what: Path,
    to: str | Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    with_questions: bool = False,
) -> Submitted:
    """Check a run folder, a ready folder or a file of answers and add it to a store: a folder, or ORG/NAME on the Hub (a folder wins).

    To a folder the files are added, on the Hub one pull request that only adds files is opened. The same submission twice is no error.
    `reproduced`: the store's owner ran the model (see `prepare`); on the Hub it is committed to main, `with_questions` with the questions.
    Raises BadInput with every problem found.
    """
    submission = prepare(what, benchmark, model, data, split, extraction, kind, reproduced)
    submission.check(what)
    if not (reproduced and is_hub_store(to)):
        return deliver(submission, to)
    from eval_harness.submissions import hub_store

    place, new = hub_store.add(str(to), submission, with_questions)
    return Submitted(submission, place, new)


def deliver(submission: Submission, to: str | Path, token: str | None = None) -> Submitted:
    """Add a submission without problems to a folder store, or open a pull request in the name of the token's owner (None: this machine's).

    It has landed when this returns: the folder is written and flushed, or the pull request committed.
    Raises BadInput as `folder_store.add` and `hub_store.propose` do.
    """
    from eval_harness.submissions import folder_store, hub_store

    if is_hub_store(to):
        submission.notes.extend(_note_on_dataset(submission))
        place, new = hub_store.propose(str(to), submission, token)
        return Submitted(submission, place, new)
    submission.flags.extend(folder_store.twins(Path(to), submission))
    folder, new = folder_store.add(Path(to), submission)
    return Submitted(submission, str(folder), new)


def _note_on_dataset(submission: Submission) -> list[str]:
    if submission.result.benchmark.revision:
        return []
    return [
        f"the dataset {submission.result.benchmark.repo} is a folder: the store's owner must name theirs to verify (--data)"
    ]


def submit_run(folder: Path, store: Path, dry_run: bool = False) -> Path:
    """Add a run to a store folder; returns where it lies (or would, with `dry_run`). Raises BadInput as `submit`."""
    if dry_run:
        submission = prepare(folder)
        submission.check(folder)
        return store / submission.folder
    return Path(submit(folder, store).place)


def prepare(
    what: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
) -> Submission:
    """Recompute what a run folder, a ready folder (result.json and answers.parquet as a store holds them) or a file of answers is worth.

    `reproduced`: whoever owns the store says that they ran the model themselves. That is their word, which nothing in the folder can give
    or prove; but of answers that no run of ours gave it cannot be so. It gets a place of its own beside the submitted one.
    What is wrong with it is in `problems`, all at once.

    Raises BadInput where there is nothing to recompute from: unreadable files, an unknown dataset, missing options.
    """
    if what.is_dir():
        if benchmark or model or split or kind:
            raise BadInput(
                f"submit {what}: a folder says its benchmark, model, its kind and split itself. Leave these options out."
            )
        from eval_harness.submissions.ready_folder import from_ready_folder, is_ready

        if is_ready(what):
            if reproduced:
                raise BadInput(f"submit {what}: --reproduced: holds answers and not the run that gave them. {RUN_IT}")
            return from_ready_folder(what, data)
        _check_run_folder(what)
        return _reproduced(what, _from_run(what, data)) if reproduced else _from_run(what, data)
    check_file(what)
    if not benchmark or not model:
        raise BadInput(f"submit {what}: is no folder. For a file of answers, name its --benchmark and --model.")
    if reproduced:
        raise BadInput(f"submit {what}: --reproduced: holds the answers of another harness. {RUN_IT}")
    selection = select_questions(benchmark, data, split)
    return from_answers(what, selection.questions, selection.benchmark(), model, kind, extraction)


def _reproduced(folder: Path, submission: Submission) -> Submission:
    """The submission as the owner's own: marked so, and with a run id of its own, since the submitter's run of these settings has the
    same one."""
    asked = read_run(folder).request.model
    run_id = submission.run_id + AGAIN
    problems = list(submission.problems)
    if asked.startswith("recorded:") or asked == "another harness":
        problems.append(f"--reproduced: its answers come from a file ({printable(asked, 200)}). {RUN_IT.rstrip('.')}")
    result = submission.result.model_copy(update={"provenance": "reproduced"})
    problems += [line for line in wrong_names(result, run_id) if line not in problems]
    return replace(submission, run_id=run_id, result=result, problems=problems)


def _check_run_folder(folder: Path) -> None:
    """Say what to give instead of a store (or what was unpacked around a result of one), or of half a ready folder."""
    if (folder / "run.json").exists():
        return
    inside = sorted(path.parent for path in folder.glob("results/*/*/*/result.json"))
    if inside:
        raise BadInput(f"submit {folder}: is a results store. Give the folder of one result, e.g. {inside[0]}")
    half = [name for name in ("answers.parquet", "result.json") if (folder / name).is_file()]
    if half:
        lacking = "result.json" if half == ["answers.parquet"] else "answers.parquet"
        raise BadInput(
            f"submit {folder}: holds {half[0]} and no {lacking}. Give the folder with both, or a run folder."
        )


def from_answers(
    path: Path,
    questions: pd.DataFrame,
    described: Benchmark,
    model: str,
    kind: str | None = None,
    extraction: str = "ours",
) -> Submission:
    """The submission that a file of another harness's answers to these questions makes. `kind`: open, proprietary, medical, baseline.

    Raises BadInput for a file that cannot be read, and a kind that is none of these.
    """
    kinds = get_args(get_args(Model.model_fields["kind"].annotation)[0])
    if kind is not None and kind not in kinds:
        raise BadInput(f"--kind {kind}: give one of {', '.join(kinds)}, or leave it out.")
    read = read_predictions(path, questions)
    records = list(read.records.values())
    digest = hashlib.sha256(
        json.dumps([described.fingerprint, extraction, records], sort_keys=True).encode()
    ).hexdigest()
    generation: dict[str, Any] = {}
    run = Run(
        run_id=f"{described.name}-{model_slug(model)}-file-{digest[:8]}",
        request=RunRequest(
            benchmark=described.name,
            data=described.repo or "",
            split=described.split,
            fingerprint=described.fingerprint or "",
            model="another harness",
            method="mc",
            prompt=None,
            samples=read.samples,
            generation=generation,
        ),
        benchmark=described,
        model=Model(name=model, kind=kind),  # type: ignore[arg-type]  # checked above
        method=Method(name="mc", samples=read.samples, generation=generation, extraction=extraction),
        deviations=[ELSEWHERE],
        environment={"python": platform.python_version()},
        created_at=_written(path),
    )
    return recompute(run, questions, answer_frame(records), extraction, read.problems)


def _written(path: Path) -> str:
    """When the file of answers was written: the same file is the same submission whenever it is submitted."""
    return datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat(timespec="seconds")


def _from_run(folder: Path, data: str | None) -> Submission:
    run = _own_file(folder / "run.json", lambda path: read_run(path.parent))
    problems: list[str] = []
    notes: list[str] = []
    questions, benchmark = _questions_of(folder, run, data, problems, notes)
    return from_run(folder, questions, benchmark, problems, notes)


def from_run(
    folder: Path,
    questions: pd.DataFrame,
    benchmark: Benchmark,
    problems: list[str] | None = None,
    notes: list[str] | None = None,
) -> Submission:
    """The submission that a run folder (run.json, answers.jsonl, and result.json where it is there) makes, on questions that we trust.

    `problems`: what is wrong with it already. Raises BadInput where its questions are other ones, or nothing can be computed.
    """
    run = _own_file(folder / "run.json", lambda path: read_run(path.parent))
    problems, notes = list(problems or []), list(notes or [])
    claimed = None
    if (folder / "result.json").exists():
        claimed = _own_file(folder / "result.json", read_result)
    if not has_fingerprint(questions, run.request.fingerprint):
        problems.append(
            f"the questions of {benchmark.repo or folder} are not those that were asked (fingerprint {str(benchmark.fingerprint)[:12]}, "
            f"the run says {run.request.fingerprint[:12]}); name the dataset with --data"
        )
        raise BadInput(f"{folder}: {'; '.join(problems)}. Nothing was submitted.")
    if run.request.model.startswith("baseline:") and run.model.kind != "baseline":
        problems.append(f"model kind {run.model.kind!r}: {run.request.model} can only land marked as 'baseline'")
    records, wrong = checked_answers(_journal(folder, problems), questions, run.request.samples, run.request.method)
    extraction = (claimed.method.extraction if claimed else None) or "ours"
    if run.method.judge is not None and claimed is None:
        notes.append("the judge it was asked with is left out: its answers are read by rules")
    run = without_judge(run)
    updates: dict[str, Any] = {"benchmark": benchmark}
    if claimed is not None:
        updates |= {"created_at": claimed.created_at, "environment": claimed.environment}
        if claimed.method.judge is not None:
            problems.append(JUDGED.replace("RUN_DIR", str(folder)))
    submission = recompute(
        run.model_copy(update=updates), questions, answer_frame(records), extraction, problems + wrong, notes
    )
    if claimed is not None and claimed.method.judge is None:
        differ = different_claims(claimed, submission.result)
        submission.problems.extend(printable(f"result.json {line}") for line in differ)
    return submission


def _own_file(path: Path, read: Callable[[Path], T]) -> T:
    """A run.json or result.json of bearable size; what is wrong with it in one harmless line."""
    try:
        if path.exists():
            check_file(path, MAX_RESULT)
        return read(path)
    except BadInput as error:
        raise BadInput(printable(str(error))) from None


def _questions_of(
    folder: Path, run: Run, data: str | None, problems: list[str], notes: list[str]
) -> tuple[pd.DataFrame, Benchmark]:
    """The questions of a run from its dataset; from the run folder itself only where the dataset is not at hand, which is said."""
    where = data or run.benchmark.repo
    asked = run.request
    if where and (data or Path(where).is_dir()):
        selection = select_questions(asked.benchmark, where, asked.split, asked.branches, asked.limit)
    elif where and run.benchmark.revision and REPOSITORY.fullmatch(where):
        repository = open_repository(where, run.benchmark.revision)
        questions = repository.questions(asked.split)
        if run.benchmark.selection:
            mine = set(_own_questions(folder)["question_id"])
            questions = questions[questions["question_id"].isin(mine)].reset_index(drop=True)
        selection = Selection(repository, asked.split, questions, run.benchmark.selection)
    else:
        questions = _own_questions(folder)
        found = fingerprint_of(questions)
        notes.append(f"the dataset {where or '(none named)'} is not at hand: its questions are those of the run folder")
        if (asked.limit or asked.branches) and not run.benchmark.selection:
            problems.append(
                "a run with --limit or --branch can only land marked as such (benchmark.selection is empty)"
            )
        return questions, run.benchmark.model_copy(update={"fingerprint": found, "questions": len(questions)})
    return selection.questions, selection.benchmark()


def _own_questions(folder: Path) -> pd.DataFrame:
    path = folder / "questions.parquet"
    frame = pd.DataFrame(list(quarantined(path)))
    needed = {"question_id", "case_id", "question", "options", "question_type", "answer"}
    if not needed <= set(frame.columns):
        raise BadInput(f"{path}: lacks the column {min(needed - set(frame.columns))}. Run `medprobe eval` again.")
    return frame


def _journal(folder: Path, problems: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The answers of a run: of a question that was asked again after it failed, the last; a torn last line is left out."""
    path = folder / "answers.jsonl"
    if not path.exists() or path.stat().st_size == 0:
        problems.append("holds no answers (answers.jsonl)")
        return
    found = Found()
    kept: dict[Any, tuple[str, dict[str, Any]]] = {}
    extra: list[tuple[str, dict[str, Any]]] = []
    for place, record in json_lines(path, found):
        key = (str(record.get("question_id")), str(record.get("sample", 0)))
        if key in kept and kept[key][1].get("status") != "failed":
            extra.append((place, record))
        else:
            kept[key] = (place, record)
    with path.open("rb") as file:
        file.seek(-1, 2)
        torn = file.read(1) != b"\n"
    problems.extend(found.problems[:-1] if torn and found.problems else found.problems)
    yield from kept.values()
    yield from extra


def recompute(
    run: Run,
    questions: pd.DataFrame,
    journal: pd.DataFrame,
    extraction: str,
    problems: list[str] | None = None,
    notes: list[str] | None = None,
) -> Submission:
    """The submission that these answers make. `problems`: what is wrong with them already."""
    try:
        result, answers = make_result(run, questions, journal, extraction)
    except ValidationError as error:
        raise BadInput(printable(f"{run.run_id}: {error.errors()[0]['msg']}.")) from None
    result = result.model_copy(update={"created_at": run.created_at})
    wrong = [printable(line) for line in (*wrong_names(result, run.run_id), *wrong_standing(result), *(problems or []))]
    told = list(notes or [])
    missing = len(questions) * run.request.samples - len(journal)
    if missing > 0:
        told.append(f"{missing:,} of {len(questions) * run.request.samples:,} answers are missing and count as wrong")
    return Submission(run.run_id, result, answers, questions, wrong, implausible(result, questions, answers), told)
