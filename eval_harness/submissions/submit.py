"""`medprobe submit`: a run folder, a result as a store holds it, or another harness's file of answers is added to a store.

Only answers are taken from the submitter: scores are computed here, and a claimed one that differs refuses the submission. One path: the
files that would land are formed (`forming.py`), exactly these bytes examined (`examination.py`), and exactly these bytes land
(`folder_store.py`, `hub_store.py`). See also: checking others' (`verification.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.integrations.reading.readers import describe
from eval_harness.records.result import Benchmark
from eval_harness.results.landing import Landing, local_account, now
from eval_harness.results.store_source import is_hub_store
from eval_harness.runs.planning.selection import select_questions
from eval_harness.submissions.datasets import Dataset, dataset_for, dataset_of, named_dataset
from eval_harness.submissions.forming import (
    RUN_IT,
    examined_answers,
    examined_folder,
    is_result_folder,
    own_dataset,
)
from eval_harness.submissions.outcome import shown
from eval_harness.submissions.submission import FILES, Submission
from eval_harness.submissions.untrusted.envelope import envelope, weight
from eval_harness.submissions.untrusted.files import check_file, printable
from eval_harness.submissions.untrusted.sandbox import OverLimit, call

FOLDER_FILES = ("run.json", "answers.jsonl", "questions.parquet", *FILES)
"""Of a run folder or a result, what is read."""


@dataclass(frozen=True)
class Submitted:
    """Where a submission went: a folder of this machine, or the address of a pull request. `new` is False when it was there already."""

    submission: Submission
    location: str
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
    account: str | None = None,
) -> Submitted:
    """Check what is handed in and add it to a store: a folder, or ORG/NAME on the Hub (a folder wins).

    To a folder the files are added, on the Hub one pull request that only adds files is opened. The same submission twice is no error.
    `reproduced`: the store's owner ran the model (see `prepare`); on the Hub it is committed to main, `with_questions` with the questions.
    `account`: who submits to a folder, this machine's user if not said; on the Hub it is the token's.
    Raises BadInput with every problem found.
    """
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = prepare(what, benchmark, model, data, split, extraction, kind, reproduced, owner)
    submission.check(what)
    if not (reproduced and is_hub_store(to)):
        return deliver(submission, to, account=account)
    from eval_harness.submissions.stores import hub_store

    location, new = hub_store.add(str(to), submission, with_questions)
    return Submitted(submission, location, new)


def deliver(submission: Submission, to: str | Path, token: str | None = None, account: str | None = None) -> Submitted:
    """Add a submission without problems to a folder store, or open a pull request in the name of the token's owner (None: this machine's).

    It has landed when this returns: the folder is written and flushed, or the pull request committed.
    Raises BadInput as `folder_store.add` and `hub_store.propose` do.
    """
    from eval_harness.submissions.stores import folder_store, hub_store

    if is_hub_store(to):
        if not submission.result.benchmark.revision:
            where = submission.result.benchmark.repo
            submission.notes.append(
                f"the dataset {where} is a folder: the store's owner must name theirs to verify (--data)"
            )
        location, new = hub_store.propose(str(to), submission, token)
        return Submitted(submission, location, new)
    who = account or local_account()
    found = folder_store.duplicate_submissions(Path(to), submission, who)
    submission.flags.extend(flag for flag in found if flag not in submission.flags)
    landing = Landing(account=who, landed_at=now(), verified_by=who, flags=shown(submission.flags))
    folder, new = folder_store.add(Path(to), submission, landing)
    return Submitted(submission, str(folder), new)


def prepare(
    what: Path,
    benchmark: str | None = None,
    model: str | None = None,
    data: str | None = None,
    split: str | None = None,
    extraction: str = "ours",
    kind: str | None = None,
    reproduced: bool = False,
    owner: str | None = None,
) -> Submission:
    """The submission that a run folder, a folder of result.json and answers.parquet, or a file of answers makes, examined.

    `reproduced`: whoever owns the store says that they ran the model themselves. That is their word, which nothing in the folder can give
    or prove; but of answers that no run of ours gave it cannot be so. It gets a folder of its own beside the submitted one.
    `owner`: of the store on the Hub, whose released datasets are vouched for. What is wrong with it is in `problems`, all at once.

    Raises BadInput where there is nothing to recompute from: unreadable files, an unknown dataset, missing options.
    """
    if what.is_dir() and (benchmark or model or split or kind):
        raise BadInput(
            f"submit {what}: a folder says its benchmark, model, its kind and split itself. Leave these options out."
        )
    if reproduced and (not what.is_dir() or is_result_folder(what)):
        raise BadInput(f"submit {what}: --reproduced: holds answers and not the run that gave them. {RUN_IT}.")
    if not what.is_dir():
        said = describe(what)
        if said is None:
            check_file(what)
        else:
            benchmark, model = benchmark or said.benchmark, model or said.model
            data, split = data or said.data, split or said.split
        if not benchmark or not model:
            raise BadInput(f"submit {what}: is not a folder. For a file of answers, name its --benchmark and --model.")
    # The envelope is that of whoever verifies it: what passes here passes there.
    limits = envelope(weight([what / name for name in FOLDER_FILES] if what.is_dir() else [what]))
    try:
        if what.is_dir():
            return call(limits, examined_folder, what, partial(_dataset, what, data, owner), reproduced)
        return call(limits, _examined_answers, what, str(benchmark), str(model), data, split, extraction, kind)
    except BadInput as error:
        if not what.is_dir() and not isinstance(error, OverLimit):
            raise
        told = str(error).removeprefix(f"{what}/").removeprefix(f"{what}: ").rstrip(".")
        told = told.removesuffix(". Nothing was submitted")
        raise type(error)(printable(f"{what}: {told}. Nothing was submitted.", 2_000)) from error


def _examined_answers(
    what: Path, benchmark: str, model: str, data: str | None, split: str | None, extraction: str, kind: str | None
) -> Submission:
    selection = select_questions(benchmark, data, split)
    dataset = dataset_of(selection.repository, selection.split, ours=True)
    return examined_answers(what, dataset, model, kind, extraction)


def _dataset(folder: Path, data: str | None, owner: str | None, benchmark: Benchmark) -> Dataset:
    """The questions for what a folder says of its benchmark; those that a run folder keeps itself only where its dataset is not at hand,
    which is said."""
    if data:
        return named_dataset(benchmark, data)
    at_hand = benchmark.revision or Path(benchmark.repo or "").is_dir()
    if not at_hand and (folder / "run.json").exists():
        return own_dataset(folder, benchmark)
    return dataset_for(benchmark, owner=owner, of_this_machine=True)
