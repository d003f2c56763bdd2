"""From what people hand in (a run folder, a file of answers, a result as a store holds it) to the two files that would land, and the
verdict on exactly these bytes.

Nothing is judged here but what never reaches those files: lines of a journal, records of a file, numbers that a run folder claims.
Reads what strangers wrote: only to be called in the sandbox. See also: the verdict (`examination.py`).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, get_args

import pandas as pd
from pydantic import ValidationError

from dataset_builders.errors import BadInput, Unavailable
from dataset_builders.fingerprints import fingerprint_of
from dataset_builders.sources.problems import clip
from eval_harness.records.limits import check_size
from eval_harness.records.names import normal_name
from eval_harness.records.result import Benchmark, Method, Model, Result, read_result
from eval_harness.runs.folder import read_run
from eval_harness.runs.scoring import Scorer, without_judge
from eval_harness.submissions.checks.validation import (
    JUDGED,
    check_samples,
    checked_answers,
    different_claims,
)
from eval_harness.submissions.datasets import Dataset, Find
from eval_harness.submissions.examination import computed_again, examine, read_claims
from eval_harness.submissions.predictions import read_predictions
from eval_harness.submissions.submission import FILES, MAX_RESULT, Bundle, Submission
from eval_harness.submissions.untrusted.files import Found, Placed, check_file, json_lines, parquet_rows, printable

T = TypeVar("T")
ELSEWHERE = "answers were given by another harness; its prompt and generation settings are not known"
NEEDED = {"question_id", "case_id", "question", "options", "question_type", "answer"}
RUN_IT = (
    "Run the model here (`medprobe eval BENCHMARK --model MODEL`) and give that run folder, or leave --reproduced out"
)


@dataclass
class Formed:
    """The files of a submission, the questions they are about, and what is wrong with what they were made from."""

    bundle: Bundle
    dataset: Dataset
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scores: Scorer | None = None

    def examined(self, reproduced: bool = False) -> Submission:
        """The verdict on exactly these bytes. Raises BadInput where nothing can be computed."""
        try:
            found = examine(self.bundle, lambda benchmark: self.dataset, reproduced, scores=self.scores)
        except Unavailable:
            raise
        except BadInput as error:
            raise BadInput("; ".join(dict.fromkeys([*self.problems, str(error)]))) from None
        found.problems[:0] = [line for line in map(printable, self.problems) if line not in found.problems]
        found.notes[:0] = [line for line in map(printable, self.notes) if line not in found.notes]
        return found


def examined_folder(folder: Path, find: Find, reproduced: bool = False) -> Submission:
    """The verdict on a run folder, or on a folder of result.json and answers.parquet. `find`: the dataset that it says it is about.

    Raises BadInput for a folder that is neither, and where nothing can be computed.
    """
    if is_result_folder(folder):
        return _from_result(folder, find).examined()
    if not (folder / "run.json").exists():
        inside = sorted(path.parent for path in folder.glob("results/*/*/*/result.json"))
        if inside:
            raise BadInput(f"is a results store. Give the folder of one result, e.g. {inside[0]}")
        half = [name for name in FILES if (folder / name).is_file()]
        if half:
            lacking = "result.json" if half == ["answers.parquet"] else "answers.parquet"
            raise BadInput(f"holds {half[0]} and no {lacking}. Give the folder with both, or a run folder")
    return _from_run(folder, find, reproduced).examined(reproduced)


def examined_answers(
    path: Path, dataset: Dataset, model: str, kind: str | None = None, extraction: str = "ours"
) -> Submission:
    """The verdict on a file of another harness's answers. `kind`: open, proprietary, medical, baseline.

    Raises BadInput for a file that cannot be read, and a kind that is none of these.
    """
    kinds = get_args(get_args(Model.model_fields["kind"].annotation)[0])
    if kind is not None and kind not in kinds:
        raise BadInput(f"model kind {clip(kind)}: give one of {', '.join(kinds)}, or leave it out.")
    read = read_predictions(path, dataset.questions)
    check_size(len(dataset.questions), read.samples)
    said = Result(
        kind="measured",
        provenance="submitted",
        benchmark=dataset.benchmark(dataset.questions, dataset.partial),
        model=Model(name=normal_name(model), kind=kind),  # type: ignore[arg-type]  # checked above
        method=Method(name="mc", samples=read.samples, extraction=extraction),
        scores={},
        deviations=[ELSEWHERE],
        environment={"python": platform.python_version()},
        # When the file was written: the same file is the same submission whenever it is submitted.
        created_at=datetime.fromtimestamp(int(path.stat().st_mtime), UTC).isoformat(timespec="seconds"),
    )
    notes = list(_missing(len(dataset.questions), read.samples, len(read.records)))
    bundle, scores = _bundle(said, dataset.questions, list(read.records.values()))
    return Formed(bundle, dataset, read.problems, notes, scores).examined()


def _from_run(folder: Path, find: Find, reproduced: bool) -> Formed:
    """What a run folder (run.json, answers.jsonl; result.json and questions.parquet where they are there) makes.

    Raises BadInput where the questions asked are not those of the dataset.
    """
    run = _own_file(folder / "run.json", lambda path: read_run(path.parent))
    claimed = _own_file(folder / "result.json", read_result) if (folder / "result.json").exists() else None
    judged = claimed is not None and claimed.method.judge is not None
    dataset = find(run.benchmark)
    questions, samples = dataset.questions, run.request.samples
    check_size(len(questions), samples)
    if run.benchmark.selection is not None:
        if not (folder / "questions.parquet").is_file():
            raise BadInput(
                f"the run asked a part ({run.benchmark.selection}): give its questions.parquet as well, which says which."
            )
        questions = dataset.part(set(own_questions(folder)["question_id"]))
    if questions.empty or fingerprint_of(questions) != run.request.fingerprint:
        raise BadInput(
            f"{folder}: the questions of {dataset.repo or folder} are not those that were asked (the run says fingerprint "
            f"{run.request.fingerprint[:16]}); choose the dataset that was asked. Nothing was submitted."
        )
    problems: list[str] = []
    model = run.request.model
    if model.startswith("baseline:") and run.model.kind != "baseline":
        problems.append(f"model kind {run.model.kind!r}: {model} can only land marked as 'baseline'")
    if reproduced and (model.startswith("recorded:") or model == "another harness"):
        problems.append(f"--reproduced: its answers come from a file ({printable(model, 200)}). {RUN_IT}")
    records, wrong = checked_answers(_journal(folder, problems), questions, samples, run.request.method)
    check_samples(records, samples)
    notes = [*([dataset.remark] if dataset.remark else []), *_missing(len(questions), samples, len(records))]
    if run.method.judge is not None and claimed is None:
        notes.append("the judge it was asked with is left out: its answers are read by rules")
    run = without_judge(run)
    benchmark = dataset.benchmark(questions, run.benchmark.selection)
    if run.benchmark.revision:  # what was asked stays what it was, wherever the questions are looked up
        benchmark = benchmark.model_copy(update={"repo": run.benchmark.repo, "revision": run.benchmark.revision})
    extraction = (claimed.method.extraction if claimed else None) or "ours"
    try:
        said = Result(
            kind="measured",
            provenance="reproduced" if reproduced else "submitted",
            benchmark=benchmark,
            model=run.model.model_copy(update={"name": normal_name(run.model.name)}),
            method=run.method.model_copy(update={"samples": samples, "extraction": extraction}),
            scores={},
            deviations=run.deviations,
            environment=(claimed or run).environment | ({"permuted": None} if run.request.permute else {}),
            command=run.command,
            created_at=(claimed or run).created_at,
        )
    except ValidationError as error:
        raise BadInput(printable(f"{run.run_id}: {error.errors()[0]['msg']}.")) from None
    bundle, scores = _bundle(said, questions, records)
    if claimed is not None and not judged:
        made = Result.model_validate_json(bundle.result)
        problems += [f"result.json {line}" for line in different_claims(claimed, made)]
    if judged:
        problems.append(JUDGED.replace("RUN_DIR", str(folder)))
    return Formed(bundle, dataset, [*problems, *wrong], notes, scores)


def _from_result(folder: Path, find: Find) -> Formed:
    """What a folder of result.json and answers.parquet makes: these very bytes where they can land as they are.

    What another store's owner reproduced is a submission here. Raises BadInput for files that are no result.
    """
    for name in FILES:
        check_file(folder / name, *((MAX_RESULT,) if name == "result.json" else ()))
    bundle = Bundle.read(folder)
    claimed = read_claims(bundle)
    dataset = find(claimed.benchmark)
    check_size(len(dataset.questions), claimed.method.samples or 1)
    notes: list[str] = []
    name = normal_name(claimed.model.name)
    if claimed.provenance == "submitted" and name == claimed.model.name:
        return Formed(bundle, dataset)
    if claimed.provenance == "reproduced":
        notes.append("it was reproduced by the owner of another store; in this one it is a submission")
    renewed = claimed.model_copy(
        update={"provenance": "submitted", "model": claimed.model.model_copy(update={"name": name})}
    )
    return Formed(Bundle(renewed.to_json().encode(), bundle.answers), dataset, notes=notes)


def is_result_folder(folder: Path) -> bool:
    """Whether a folder is one result as a store holds it, and no run folder."""
    return not (folder / "run.json").exists() and all((folder / name).is_file() for name in FILES)


def own_dataset(folder: Path, said: Benchmark) -> Dataset:
    """The questions that a run folder keeps, for a dataset that is not at hand; nobody vouches for them."""
    return Dataset(
        said.name, said.split, said.family, own_questions(folder), said.origin, None, False, said.repo, said.revision,
        f"the dataset {said.repo or '(none named)'} is not at hand: its questions are those of the run folder",
    )  # fmt: skip


def own_questions(folder: Path) -> pd.DataFrame:
    """The questions of a run folder. Raises BadInput where it keeps none."""
    path = folder / "questions.parquet"
    if not path.is_file():
        raise BadInput(
            f"{folder}: has no questions.parquet. Run `medprobe eval` again, or name the dataset with --data."
        )
    frame = pd.DataFrame(list(parquet_rows(path)))
    if not set(frame.columns) >= NEEDED:
        raise BadInput(f"{path}: lacks the column {min(NEEDED - set(frame.columns))}. Run `medprobe eval` again.")
    return frame


def _bundle(said: Result, questions: pd.DataFrame, records: Sequence[dict[str, Any]]) -> tuple[Bundle, Scorer]:
    """The two files of what a result says of itself (its scores aside) and its answers; and what remembers its scores."""
    scores = Scorer()
    computed, answers = computed_again(said, questions, records, scores=scores)
    kept = {"created_at": said.created_at, "provenance": said.provenance}
    return Bundle.of(computed.model_copy(update=kept), answers), scores


def _missing(questions: int, samples: int, answers: int) -> Iterator[str]:
    missing = questions * samples - answers
    if missing > 0:
        yield f"{missing:,} of {questions * samples:,} answers are missing and count as wrong"


def _own_file(path: Path, read: Callable[[Path], T]) -> T:
    """A run.json or result.json of bearable size; what is wrong with it in one harmless line."""
    try:
        if path.exists():
            check_file(path, MAX_RESULT)
        return read(path)
    except BadInput as error:
        raise BadInput(printable(str(error))) from None


def _journal(folder: Path, problems: list[str]) -> Iterator[Placed]:
    """The answers of a run: of a question that was asked again after it failed, the last; a torn last line is left out."""
    path = folder / "answers.jsonl"
    if not path.exists() or path.stat().st_size == 0:
        problems.append("holds no answers (answers.jsonl)")
        return
    found = Found()
    kept: dict[Any, Placed] = {}
    extra: list[Placed] = []
    for where, record in json_lines(path, found, constants=True, torn=True):
        key = (str(record.get("question_id")), str(record.get("sample", 0)))
        if key in kept and kept[key][1].get("status") != "failed":
            extra.append((where, record))
        else:
            kept[key] = (where, record)
    problems.extend(found.problems)
    yield from kept.values()
    yield from extra
