"""`medprobe submit`: a run folder, a submission as a store holds it, or a file of answers is added to a store.

One path: the files that would be added are packed (`packaging.py`), exactly these bytes examined (`examine.py`), and exactly these bytes
added (`folder.py`, `hub.py`). See also: checking others' (`verification.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.records.result import Benchmark
from eval_harness.records.selection import select_questions
from eval_harness.store import folder as folder_store
from eval_harness.store import hub
from eval_harness.store.acceptance import Acceptance, local_account, now
from eval_harness.store.datasets import Dataset, dataset_for, dataset_of, named_dataset
from eval_harness.store.names import Published
from eval_harness.store.packaging import examined_answers, examined_folder
from eval_harness.store.scan import is_hub_store
from eval_harness.store.submission import Submission
from eval_harness.store.untrusted import check_file, printable, printable_lines


@dataclass(frozen=True)
class Submitted:
    """Where a submission went: a folder of this machine, or the address of a pull request. `new` is False when it was there already."""

    submission: Submission = field(repr=False)
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
    published: Published | None = None,
) -> Submitted:
    """Check what is handed in and add it to a store: a folder, or ORG/NAME on the Hub (a folder wins).

    To a folder the files are added with what is derived from them; on the Hub one pull request that only adds the files is opened. The
    same submission twice is no error.
    `reproduced`: the store's owner ran the model (see `prepare`); on the Hub it is committed to main, `with_questions` with the questions.
    `account`: who submits to a folder, this machine's user if not said; on the Hub it is the token's. `published`: names in papers, with
    which the model's is compared.
    Raises BadInput with every problem found.
    """
    owner = str(to).split("/")[0] if is_hub_store(to) else None
    submission = prepare(what, benchmark, model, data, split, extraction, kind, reproduced, owner)
    submission.check(what)
    if not (reproduced and is_hub_store(to)):
        return deliver(submission, to, account=account, published=published)
    location, new = hub.add(str(to), submission, with_questions)
    return Submitted(submission, location, new)


def deliver(
    submission: Submission,
    to: str | Path,
    token: str | None = None,
    account: str | None = None,
    published: Published | None = None,
) -> Submitted:
    """Add a submission without problems to a folder store, or open a pull request in the name of the token's owner (None: this machine's).

    It is in the store when this returns: the folder is written and flushed, or the pull request committed.
    Raises BadInput as `folder.add` and `hub.propose` do.
    """
    if is_hub_store(to):
        if not submission.result.benchmark.revision:
            submission.notes.append("its dataset is a folder: the store's owner must name theirs to verify (--data)")
        location, new = hub.propose(str(to), submission, token)
        return Submitted(submission, location, new)
    who = account or local_account()
    found = folder_store.duplicate_submissions(Path(to), submission, who, published=published)
    submission.flags.extend(flag for flag in found if flag not in submission.flags)
    acceptance = Acceptance(account=who, accepted_at=now(), verified_by=who, flags=printable_lines(submission.flags))
    folder, new = folder_store.add(Path(to), submission, acceptance)
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
    """The submission that a run folder, a folder of run.json and answers.parquet, or a file of answers makes, examined.

    `reproduced`: the store's owner says that they ran the model themselves. That is their word, which nothing in the folder can give
    or prove; but of answers that no run of ours gave it cannot be so. It gets a folder of its own beside the submitted one.
    `owner`: of the store on the Hub, whose released datasets are vouched for. What is wrong with it is in `problems`, all at once.

    Raises BadInput where nothing can be derived: unreadable files, an unknown dataset, missing options.
    """
    if what.is_dir() and (benchmark or model or split or kind):
        raise BadInput(
            f"submit {what}: a folder says its benchmark, model, its kind and split itself. Leave these options out."
        )
    if not what.is_dir():
        check_file(what)
        if not benchmark or not model:
            raise BadInput(f"submit {what}: is not a folder. For a file of answers, name its --benchmark and --model.")
        if reproduced:
            raise BadInput(
                f"submit {what}: --reproduced: a file of answers says nothing of its run. Run the model here (`medprobe eval "
                "BENCHMARK --model MODEL`) and give that run folder."
            )
        selection = select_questions(benchmark, data, split)
        dataset = dataset_of(selection.repository, selection.split, ours=True)
        return examined_answers(what, dataset, model, kind, extraction)
    find = partial(_dataset, data, owner)
    try:
        return examined_folder(what, find, reproduced)
    except BadInput as error:
        told = str(error).removeprefix(f"{what}/").removeprefix(f"{what}: ").rstrip(".")
        told = told.removesuffix(". Nothing was submitted")
        raise type(error)(printable(f"{what}: {told}. Nothing was submitted.", 2_000)) from error


def _dataset(data: str | None, owner: str | None, benchmark: Benchmark) -> Dataset:
    """The questions for what a folder says of its benchmark."""
    return named_dataset(benchmark, data) if data else dataset_for(benchmark, owner=owner, of_this_machine=True)
