"""Turn uploaded files into a submission whose scores are computed here, and into a submission
bundle.

Answers are accepted for trusted datasets and for question sets in the store. Only the answers of an
upload are used: questions, key and fingerprint are the target's. See also: reading untrusted files
and delivering submissions (`eval_harness/store/`).
"""

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
from eval_harness.store.contents import Submission
from eval_harness.store.dataset_lookup import Dataset, check_chosen_dataset, load_split
from eval_harness.store.sandbox import run_in_turn
from eval_harness.store.submit import FOLDER_FILES, JOURNAL_NAME, MAX_RESULT_BYTES, examine_answer_file, examine_folder
from leaderboard_space.benchmarks import BENCHMARK_LABELS
from leaderboard_space.data.board import Board, TrustedData
from leaderboard_space.data.outcomes import read_questions
from leaderboard_space.html import plural

ACCEPTED_FILES = "Give one file of answers; or run.json and answers.parquet of a run folder or a submission."


@dataclass(frozen=True)
class Target:
    """A question set that accepts answers.

    `dataset` loads its questions; it raises BadInput if they cannot be read.
    """

    benchmark: Benchmark
    dataset: Callable[[], Dataset]

    @property
    def label(self) -> str:
        """Display name: `GMAI-MMBench, validation, 22 questions (custom)`."""
        benchmark = self.benchmark
        name = BENCHMARK_LABELS[benchmark.family] if benchmark.name == benchmark.family else benchmark.name
        kind = {None: "", "official": "", "phantom": " (phantoms)", "custom": " (custom)"}[benchmark.origin]
        part = f", {benchmark.selection}" if benchmark.selection else ""
        return f"{name}, {benchmark.split}, {plural(benchmark.questions, 'question')}{part}{kind}"


def submission_targets(board: Board, trusted: TrustedData) -> dict[str, Target]:
    """List the question sets that accept answers.

    Args:
        board: The board, whose store keeps the questions of its results.
        trusted: The trusted datasets.

    Returns:
        Key -> target, trusted datasets first; a set in both is the trusted one.
    """
    targets, fingerprints = {}, set()
    for split in trusted.splits:
        if split.has_answers:
            benchmark = split.benchmark
            targets[f"{benchmark.repo}@{benchmark.split}"] = Target(
                benchmark, partial(load_split, split.repository, benchmark.split, is_vouched=True)
            )
            fingerprints.add(benchmark.fingerprint)
    for section in board.snapshot.all_sections:
        measured = [entry.result.benchmark for entry in section.entries if entry.result.kind == "measured"]
        fingerprint = section.fingerprint
        if (
            section.kind == "retired"
            or fingerprint is None
            or fingerprint in fingerprints
            or not measured
            or measured[0].selection
        ):
            continue
        path = board.questions_path(fingerprint)
        if path is not None and path.is_file():
            fingerprints.add(fingerprint)
            targets[f"store:{fingerprint}"] = Target(
                measured[0], partial(_store_dataset, measured[0], path, fingerprint)
            )
    return targets


def _store_dataset(benchmark: Benchmark, path: Path, fingerprint: str) -> Dataset:
    """Load the questions that a store keeps for its results."""
    questions = read_questions(path, fingerprint)
    about = (benchmark.repo, benchmark.revision, benchmark.validated)
    return Dataset(benchmark.name, benchmark.split, benchmark.family, questions, benchmark.origin, None, False, *about)


def examine_upload(
    files: Sequence[str | Path], target: Target, model: str = "", kind: str | None = None, client: str = ""
) -> Submission:
    """Score uploaded files on the questions of a target.

    Args:
        files: One file of answers (JSON Lines, CSV, Parquet), or the files of a run folder or
            submission (run.json and answers.parquet; further files of the folder are allowed).
        target: The question set.
        model: The model's name; required for a single file of answers.
        kind: The model's kind, if stated.
        client: Rate-limit key (one upload at a time).

    Returns:
        The submission; its `problems` list what must be fixed before it can be sent.

    Raises:
        BadInput: If nothing can be computed. The message contains no server-side path.
    """
    paths_by_name = {Path(file).name: Path(file) for file in files}
    if not paths_by_name:
        raise BadInput(f"no file was given. {ACCEPTED_FILES}")
    with temporary_folder(Path(tempfile.gettempdir()), "submission-") as folder:
        try:
            return run_in_turn(client, _examine_files, paths_by_name, folder, target.dataset(), model.strip(), kind)
        except BadInput as error:
            # Visitors must not see where this server keeps uploads.
            error.where = error.where and Path(str(error.where)).name
            raise


def _examine_files(
    paths_by_name: dict[str, Path], folder: Path, dataset: Dataset, model: str, kind: str | None
) -> Submission:
    """Examine uploaded files by their names.

    `folder`: where the files of a run folder are copied.
    """
    # Without run.json it is a plain file of answers.
    if RUN_FILE not in paths_by_name:
        if len(paths_by_name) > 1:
            raise BadInput(f"{len(paths_by_name)} files, but no run.json among them. {ACCEPTED_FILES}")
        if not model:
            raise BadInput("no model name was given. Say which model gave these answers.")
        (path,) = paths_by_name.values()
        return examine_answer_file(path, dataset, model, kind)
    # Further files of a run folder are accepted; anything else is refused by name.
    unknown = sorted(set(paths_by_name) - {*FOLDER_FILES, JOURNAL_NAME})
    if unknown:
        raise BadInput(f"{unknown[0]}: not a file of a run folder. {ACCEPTED_FILES}")
    for name, path in paths_by_name.items():
        if name == JOURNAL_NAME:  # a run's answers are in answers.parquet as well
            continue
        check_file(path, MAX_RESULT_BYTES if name.endswith(".json") else MAX_FILE_BYTES)
        shutil.copyfile(path, folder / name)
    return examine_folder(folder, partial(check_chosen_dataset, dataset))


def bundle_archive(submission: Submission) -> bytes:
    """Zip a submission in the layout of a store.

    The paths are `results/BENCHMARK/MODEL/RUN_ID/{run.json,answers.parquet}`.

    Returns:
        The archive; identical bytes for the same submission.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in sorted(submission.files().items()):
            assert path.rsplit("/", 1)[-1] in SUBMITTED_FILES
            # A fixed date, so that the same submission gives the same bytes.
            archive.writestr(zipfile.ZipInfo(path, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
