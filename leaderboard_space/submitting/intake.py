"""From uploaded files to a submission that was computed here, and the submission bundle that it makes.

Answers are accepted for the trusted datasets, and for the sets of questions that the store itself keeps. Nothing of what is uploaded is
believed but the answers: questions, key and fingerprint are the target's. See also: reading strangers' files within limits and delivering
a submission (`eval_harness/store/`).
"""

from __future__ import annotations

import io
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dataset_builders.errors import BadInput
from dataset_builders.files import temporary_folder
from eval_harness.answer_files.untrusted import check_file
from eval_harness.derive.run_files import RUN_FILE, SUBMITTED_FILES
from eval_harness.records.limits import MAX_FILE_BYTES
from eval_harness.records.result import Benchmark
from eval_harness.store.dataset_lookup import Dataset, check_chosen_dataset, load_split
from eval_harness.store.sandbox import run_in_turn
from eval_harness.store.submission import Submission
from eval_harness.store.submit import FOLDER_FILES, JOURNAL_NAME, MAX_RESULT_BYTES, examine_answer_file, examine_folder
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.data.board import Board
from leaderboard_space.data.outcomes import read_questions
from leaderboard_space.data.store.trusted_data import TrustedData
from leaderboard_space.html import plural

ACCEPTED_FILES = "Give one file of answers; or run.json and answers.parquet of a run folder or a submission."


@dataclass(frozen=True)
class Target:
    """A set of questions to hand in answers for. `dataset` reads them, and raises BadInput where it cannot."""

    benchmark: Benchmark
    dataset: Callable[[], Dataset]

    @property
    def label(self) -> str:
        """In words: `GMAI-MMBench, validation, 22 questions (custom)`."""
        of = self.benchmark
        name = BENCHMARK_LABELS[of.family] if of.name == of.family else of.name
        kind = {None: "", "official": "", "phantom": " (phantoms)", "custom": " (custom)"}[of.origin]
        part = f", {of.selection}" if of.selection else ""
        return f"{name}, {of.split}, {plural(of.questions, 'question')}{part}{kind}"


def submission_targets(board: Board, trusted: TrustedData) -> dict[str, Target]:
    """The targets by their keys, those of the trusted datasets first. A set that both know is the trusted one."""
    found, seen = {}, set()
    for split in trusted.splits:
        if split.has_answers:
            of = split.benchmark
            found[f"{of.repo}@{of.split}"] = Target(
                of, partial(load_split, split.repository, of.split, is_vouched=True)
            )
            seen.add(of.fingerprint)
    for sections in board.snapshot.sections.values():
        for section in sections:
            measured = [entry.result.benchmark for entry in section.entries if entry.result.kind == "measured"]
            mark = section.fingerprint
            if section.kind == "retired" or mark is None or mark in seen or not measured or measured[0].selection:
                continue
            path = board.questions_path(mark)
            if path is not None and path.is_file():
                seen.add(mark)
                found[f"store:{mark}"] = Target(measured[0], partial(_store_dataset, measured[0], path, mark))
    return found


def _store_dataset(of: Benchmark, path: Path, mark: str) -> Dataset:
    """The questions that a store keeps beside its results."""
    questions = read_questions(path, mark)
    about = (of.repo, of.revision, of.validated)
    return Dataset(of.name, of.split, of.family, questions, of.origin, None, False, *about)


def examine_upload(
    files: Sequence[str | Path], target: Target, model: str = "", kind: str | None = None, client: str = ""
) -> Submission:
    """What uploaded files are worth on the questions of `target`; everything wrong with them is in `problems`.

    `files`: one file of answers (JSON Lines, CSV, Parquet; then `model` names what gave them), or the files of a run folder or of a
    submission as a store holds it (run.json and answers.parquet, others of the folder as well). `client`: of whom one is read at a time.
    Raises BadInput, with no path of this machine in it, where nothing can be computed.
    """
    given = [Path(file) for file in files]
    named = {path.name: path for path in given}
    if not given:
        raise BadInput(f"no file was given. {ACCEPTED_FILES}")
    with temporary_folder(Path(tempfile.gettempdir()), "submission-") as folder:
        try:
            submission = run_in_turn(client, _examine_files, named, folder, target.dataset(), model.strip(), kind)
        except BadInput as error:
            raise type(error)(_hide_paths(str(error), [folder, *given])) from None
    submission.problems[:] = [_hide_paths(line, [folder, *given]) for line in submission.problems]
    submission.notes[:] = [_hide_paths(line, [folder, *given]) for line in submission.notes]
    return submission


def _examine_files(named: dict[str, Path], folder: Path, dataset: Dataset, model: str, kind: str | None) -> Submission:
    """The verdict on what was given, each file under the name that it has. `folder`: where the files of a folder are put."""
    if RUN_FILE not in named:
        if len(named) > 1:
            raise BadInput(f"{len(named)} files, but no run.json among them. {ACCEPTED_FILES}")
        if not model:
            raise BadInput("no model name was given. Say which model gave these answers.")
        (path,) = named.values()
        return examine_answer_file(path, dataset, model, kind)
    unknown = sorted(set(named) - {*FOLDER_FILES, JOURNAL_NAME})
    if unknown:
        raise BadInput(f"{unknown[0]}: not a file of a run folder. {ACCEPTED_FILES}")
    for name, path in named.items():
        if name == JOURNAL_NAME:  # a run's answers are in answers.parquet as well
            continue
        check_file(path, MAX_RESULT_BYTES if name.endswith(".json") else MAX_FILE_BYTES)
        shutil.copyfile(path, folder / name)
    return examine_folder(folder, partial(check_chosen_dataset, dataset))


def _hide_paths(line: str, paths: Sequence[Path]) -> str:
    """A message without the paths of this machine: a file goes by its name alone."""
    for path in paths:
        line = line.replace(f"{path}/", "").replace(f"{path}, ", f"{path.name}, ").replace(str(path), path.name)
    return line


def bundle_archive(submission: Submission) -> bytes:
    """A zip of the submission as a store holds it (`results/BENCHMARK/MODEL/RUN_ID/{run.json,answers.parquet}`).

    The same bytes for the same submission.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(submission.files().items()):
            assert path.rsplit("/", 1)[-1] in SUBMITTED_FILES
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
