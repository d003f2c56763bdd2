"""From uploaded files to a submission that was computed here, and the ready folder that it makes.

Nothing of what is uploaded is believed but the answers: questions, key and fingerprint are the target's. Not here: reading strangers'
files within limits and delivering a submission (`eval_harness/submissions/`).
"""

from __future__ import annotations

import filecmp
import hashlib
import io
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_of
from dataset_builders.temporary import temporary_folder
from eval_harness.results import Benchmark, model_slug, read_result
from eval_harness.runs import Run, read_run
from eval_harness.submissions.envelope import weight
from eval_harness.submissions.examination import FILES, Dataset
from eval_harness.submissions.foreign_files import MAX_FILE, check_file, quarantined
from eval_harness.submissions.ready_folder import examined
from eval_harness.submissions.sandbox import in_turn
from eval_harness.submissions.submit import MAX_RESULT, Submission, from_answers, from_run
from leaderboard_space.submitting.targets import Target

RUN_FILES = ("run.json", "answers.jsonl", "result.json", "questions.parquet", "answers.parquet")
SHAPES = "Give one file of answers; or run.json and answers.jsonl of a run folder; or result.json and answers.parquet."


def receive(files: Sequence[str | Path], target: Target, model: str = "", kind: str | None = None) -> Submission:
    """What uploaded files are worth on the questions of `target`; everything wrong with them is in `problems`.

    `files`: one file of answers (JSON Lines, JSON, CSV, Parquet; then `model` names who gave them), or the files of a run folder
    (run.json and answers.jsonl, others of the folder as well), or a result as a store holds it (result.json and answers.parquet).
    Raises BadInput, with no path of this machine in it, where nothing can be computed.
    """
    given = [Path(file) for file in files]
    named = {path.name: path for path in given}
    if not given:
        raise BadInput(f"no file was given. {SHAPES}")
    if not all(_same(path, named[path.name]) for path in given):
        raise BadInput(f"two files have the same name. {SHAPES}")
    with temporary_folder(Path(tempfile.gettempdir()), "submission-") as place:
        held = replace(
            target, questions=partial(pd.DataFrame.copy, target.questions())
        )  # what another process can be sent
        try:
            submission = in_turn(weight(given), _received, named, place, held, model.strip(), kind)
        except BadInput as error:
            raise type(error)(_without(str(error), [place, *given])) from None
    submission.problems[:] = [_without(line, [place, *given]) for line in submission.problems]
    submission.notes[:] = [_without(line, [place, *given]) for line in submission.notes]
    return submission


def _same(one: Path, other: Path) -> bool:
    """Whether two uploads are one file that was given twice."""
    try:
        return one == other or filecmp.cmp(one, other, shallow=False)
    except OSError:
        return False


def _received(named: dict[str, Path], place: Path, target: Target, model: str, kind: str | None) -> Submission:
    if "run.json" in named or "result.json" in named:
        unknown = sorted(set(named) - set(RUN_FILES))
        if unknown:
            raise BadInput(f"{unknown[0]}: is no file of a run folder. {SHAPES}")
        for name, path in named.items():
            check_file(path, MAX_RESULT if name.endswith(".json") else MAX_FILE)
            shutil.copyfile(path, place / name)
        return _of_run(place, target) if "run.json" in named else _of_result(place, target)
    if len(named) > 1:
        raise BadInput(f"{len(named)} files, and none is a run.json or result.json. {SHAPES}")
    if not model:
        raise BadInput("no model name was given. Say which model gave these answers.")
    path = next(iter(named.values()))
    check_file(path)
    return from_answers(path, target.questions(), target.benchmark, model, kind)


def _of_run(place: Path, target: Target) -> Submission:
    run = read_run(place)
    if not (place / "answers.jsonl").is_file():
        raise BadInput("answers.jsonl is missing beside run.json. Give both.")
    _check_name(run.benchmark, target)
    questions, benchmark = _asked(place, run, target)
    return from_run(place, questions, benchmark)


def _asked(place: Path, run: Run, target: Target) -> tuple[pd.DataFrame, Benchmark]:
    """The target's questions that the run asked: all of them, or the part that its own list names and its record admits to."""
    questions = target.questions()
    if run.benchmark.selection is None:
        return questions, target.benchmark
    if not (place / "questions.parquet").is_file():
        raise BadInput(
            f"the run asked a part ({run.benchmark.selection}): give its questions.parquet as well, which says which."
        )
    wanted = {row.get("question_id") for row in quarantined(place / "questions.parquet")}
    part = questions[questions["question_id"].isin(wanted)].reset_index(drop=True)
    changed = {
        "selection": run.benchmark.selection,
        "questions": len(part),
        "fingerprint": fingerprint_of(part) if len(part) else None,
    }
    return part, target.benchmark.model_copy(update=changed)


def _of_result(place: Path, target: Target) -> Submission:
    if not (place / "answers.parquet").is_file():
        raise BadInput("answers.parquet is missing beside result.json. Give both.")
    claimed = read_result(place / "result.json")
    _check_name(claimed.benchmark, target)
    digest = hashlib.sha256((place / "answers.parquet").read_bytes()).hexdigest()[:8]
    run_id = f"{claimed.benchmark.name}-{model_slug(claimed.model.name)}-ready-{digest}"
    benchmark = target.benchmark
    dataset = Dataset(target.questions(), benchmark.format, benchmark.origin, target.partial, ours=target.trusted)
    return examined(place, run_id, claimed, dataset)


def _check_name(theirs: Benchmark, target: Target) -> None:
    if (theirs.name, theirs.split) != (target.benchmark.name, target.benchmark.split):
        raise BadInput(
            f"these are answers to {theirs.name}, {theirs.split}; chosen is {target.benchmark.name}, {target.benchmark.split}. "
            "Choose the other one above."
        )


def _without(line: str, paths: Sequence[Path]) -> str:
    """A message without the places of this machine: a file goes by its name alone."""
    for path in paths:
        line = line.replace(f"{path}/", "").replace(f"{path}, ", f"{path.name}, ").replace(str(path), path.name)
    return line


def ready_folder(submission: Submission) -> bytes:
    """A zip of the submission as a store holds it (`results/BENCHMARK/MODEL/RUN_ID/{answers.parquet,result.json}`).

    The same bytes for the same submission.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(submission.files().items()):
            assert path.rsplit("/", 1)[-1] in FILES
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
