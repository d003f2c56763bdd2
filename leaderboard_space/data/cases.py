"""The cases of a question set: select and sort them by words, labels and model errors; read the
answers to them, and load their images.

Only images of phantoms, and those whose licence (as stated in the dataset that a result names)
permits redistribution, are shown, and only if the dataset's questions are the section's. No request
waits for the Hub: missing images are fetched in the background, and only those of viewed cases.

See also: drawing the page (`views/cases.py`).
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dataset_builders.benchmarks import facets_of
from dataset_builders.errors import BadInput
from dataset_builders.facets import UNLABELLED
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.client import endpoint
from dataset_builders.hub.repository import Repository, open_repository
from dataset_builders.images.licences import allows_redistribution
from eval_harness.derive.metrics import OVERALL_METRICS
from eval_harness.derive.run_files import read_readings
from eval_harness.scores.grading import question_image_ids
from leaderboard_space.data.board import Board
from leaderboard_space.data.cache import COMPUTING, cached
from leaderboard_space.data.outcomes import Bools, Floats, Ints, Outcomes
from leaderboard_space.data.sections import Entry, Section

SEARCHED_COLUMNS = ("question_id", "case_id", "question", "options", "categories", "department", "modality", "task", "keyword", "organ",
            "image_type", "scenario")  # fmt: skip
MAX_LABELS = 60
"""Maximum number of values for which a facet is offered as a list of choices; otherwise it is
searchable only."""


def correctness_metric(outcomes: Outcomes) -> str | None:
    """Return the metric that defines a correct answer, over all questions; None if all answers are
    hidden.
    """
    name = OVERALL_METRICS.get(outcomes.family)
    return name if name in outcomes.metrics else next(iter(outcomes.metrics), None)


def case_shares(outcomes: Outcomes, keys: Sequence[str], metric: str | None = None) -> Floats:
    """Compute the share of each case that each result answered correctly.

    Args:
        outcomes: The aligned answers.
        keys: Entry keys of K results.
        metric: The metric that defines a correct answer; by default `correctness_metric`.

    Returns:
        (K, C) shares from 0 to 1; NaN for cases that are not scored.
    """
    name = metric if metric in outcomes.metrics else correctness_metric(outcomes)
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    if name is None or not keys:
        return np.full((len(keys), cases), np.nan)
    units, at = outcomes.metrics[name], outcomes.unit_index[name].case
    shares = np.empty((len(keys), cases))
    for row, key in enumerate(keys):
        # A unit with denominator 0 does not count for this run.
        top, base = units.run(outcomes.row_of[key])
        counted = base > 0
        total = np.bincount(at, counted, minlength=cases)
        right = np.bincount(at, top / np.where(counted, base, 1.0), minlength=cases)
        shares[row] = np.where(total > 0, right / np.maximum(total, 1), np.nan)
    return shares


@cached(COMPUTING)
def mean_case_shares(outcomes: Outcomes, keys: tuple[str, ...]) -> Floats:
    """Compute the mean share of each case that the results `keys` answered correctly, cached.

    Returns:
        (C,) shares from 0 to 1; NaN for cases on which no result is scored.
    """
    shares = case_shares(outcomes, keys)
    scored_runs = np.isfinite(shares).sum(axis=0)
    return np.where(scored_runs > 0, np.nan_to_num(shares).sum(axis=0) / np.maximum(scored_runs, 1), np.nan)


def cases_with_words(outcomes: Outcomes, query: str) -> Bools:
    """Return the (C,) mask of cases with a question that contains every word of `query`.

    The search covers text, ids, options and labels (`SEARCHED_COLUMNS`).
    """
    questions = outcomes.questions
    mask = np.ones(len(questions), dtype=bool)
    if query.strip():
        columns = [name for name in SEARCHED_COLUMNS if name in questions.columns]
        haystack = questions[columns].fillna("").map(str).agg(" ".join, axis=1).str.lower()
        for word in query.lower().split():
            mask &= haystack.str.contains(word, regex=False).to_numpy(dtype=bool)
    return cases_of_questions(outcomes, mask)


def cases_with_label(outcomes: Outcomes, facet: str, label: str) -> Bools:
    """Return the (C,) mask of cases with a question that has the label."""
    mask = np.zeros(len(outcomes.questions), dtype=bool)
    rows = outcomes.rows_by_label(facet).get(label)
    if rows is not None:
        mask[rows] = True
    return cases_of_questions(outcomes, mask)


def label_choices(outcomes: Outcomes) -> list[tuple[str, str, int]]:
    """List the labels of facets with at most MAX_LABELS values.

    Returns:
        (facet, label, number of cases), the largest first within a facet.
    """
    choices = []
    for facet in facets_of(outcomes.family, outcomes.questions.columns):
        values = {label: rows for label, rows in outcomes.rows_by_label(facet).items() if label != UNLABELLED}
        if 1 < len(values) <= MAX_LABELS:
            sizes = {label: len(np.unique(outcomes.case_of_question[rows])) for label, rows in values.items()}
            choices += [
                (facet, label, size)
                for label, size in sorted(
                    sizes.items(), key=lambda label_and_size: (-label_and_size[1], label_and_size[0])
                )
            ]
    return choices


def sort_cases(cases: Ints, mean: Floats, order: str) -> Ints:
    """Sort case numbers.

    Args:
        cases: Case numbers.
        mean: (C,) mean share of correct answers per case, as `mean_case_shares` returns it.
        order: `stored`; `wrong`: lowest mean first; `split`: means nearest to one half first.

    Returns:
        The case numbers in that order; cases that are not scored come last.
    """
    if order == "stored" or not cases.size or not mean.size:
        return cases
    # 2.0 sorts cases without a score after all others.
    rate = np.where(np.isfinite(mean), mean if order == "wrong" else np.abs(mean - 0.5), 2.0)[cases]
    return cases[np.argsort(rate, kind="stable")]


def cases_sharing_images(outcomes: Outcomes, case: int) -> Ints:
    """Return the numbers of the other cases that share an image with a case."""
    if "image_id" not in outcomes.questions.columns:
        return np.zeros(0, np.int64)
    images = question_image_ids(outcomes.questions)
    case_of_image = outcomes.case_of_question[images.index]
    cases = np.unique(case_of_image[images.isin(images[case_of_image == case].dropna()).to_numpy(dtype=bool)])
    return cases[cases != case]


def cases_of_questions(outcomes: Outcomes, questions: Bools) -> Bools:
    """Return the (C,) mask of cases that have a question in the (Q,) mask `questions`."""
    cases = int(outcomes.case_of_question.max(initial=-1)) + 1
    return np.bincount(outcomes.case_of_question, questions, minlength=cases) > 0


Answer = tuple[list[int], str, str]
"""(chosen option indices, status, response text)."""
NO_ANSWER: Answer = ([], "no answer", "")


def read_shown_images(entry: Entry, question_ids: Sequence[str]) -> dict[str, list[str]]:
    """Read which images of another case were shown with each question (the swapped-image
    condition).

    Args:
        entry: The result whose answers to read.
        question_ids: The questions.

    Returns:
        Question id -> image ids.

    Raises:
        BadInput: If the answers file cannot be read.
    """
    try:
        assert entry.answers is not None
        is_requested = pc.field("question_id").isin(list(question_ids))
        table = pq.read_table(entry.answers, columns=["question_id", "shown"], filters=is_requested)
        return {
            name: image_ids or []
            for name, image_ids in zip(*(column.to_pylist() for column in table.columns), strict=True)
        }
    except Exception as error:  # a damaged file must cost one line of the page, not the page
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None


def read_case_answers(entry: Entry, question_ids: Sequence[str]) -> dict[str, Answer]:
    """Read the first sample's answer to each question.

    Only these rows are read: a page shows a few questions of many runs, whose full answers would
    not fit in memory.

    Args:
        entry: The result whose answers to read.
        question_ids: The questions.

    Returns:
        Question id -> answer; questions without an answer are missing.

    Raises:
        BadInput: If the answers file cannot be read.
    """
    try:
        assert entry.derived is not None
        table = read_readings(entry.derived, question_ids=question_ids)
        rows = table.sort_values("sample", kind="stable").drop_duplicates("question_id").to_dict("records")
        return {
            str(row["question_id"]): (
                [int(option) for option in row["choice"] or []],
                str(row["status"]),
                str(row["response"] or ""),
            )
            for row in rows
        }
    except Exception as error:  # as in `read_shown_images`
        raise BadInput(f"{entry.key}: its answers cannot be read ({type(error).__name__}).") from None


AnswersByEntry = dict[str, dict[str, Answer]]
"""Entry key -> question id -> answer. Results whose answers cannot be read are missing."""


def read_answers(outcomes: Outcomes, cases: np.ndarray, entries: Sequence[Entry]) -> AnswersByEntry:
    """Read the answers of results to the questions of some cases.

    Args:
        outcomes: The questions.
        cases: Numbers of the cases.
        entries: The results.
    """
    ids = outcomes.questions["question_id"][np.isin(outcomes.case_of_question, cases)].tolist()
    answers: AnswersByEntry = {}
    # Unreadable answers must not take the page down: the result is left out.
    for entry in (entry for entry in entries if entry.answers is not None):
        with suppress(BadInput):
            answers[entry.key] = read_case_answers(entry, ids)
    return answers


MAX_RUNS = 60
"""Maximum number of results whose answers to a case are shown."""


def answered_entries(section: Section, outcomes: Outcomes) -> list[Entry]:
    """List the results whose answers are known."""
    return [entry for entry in section.entries if entry.key in outcomes.row_of]


def counted_keys(section: Section, outcomes: Outcomes) -> tuple[str, ...]:
    """List the keys of the results by which a case counts as often wrong or as disputed.

    These are the results that are neither baselines nor withdrawn, or all results if there are
    none.
    """
    # Baselines (chance, oracle) say nothing about how hard a case is.
    entries = [entry for entry in answered_entries(section, outcomes) if not entry.is_reference]
    return tuple(entry.key for entry in entries if entry.provenance.withdrawal is None) or tuple(outcomes.runs)


def displayed_entries(section: Section, outcomes: Outcomes) -> list[Entry]:
    """List the results whose answers are shown: all, or the best `MAX_RUNS`."""
    name, entries = correctness_metric(outcomes), answered_entries(section, outcomes)
    if name is None:
        return entries[:MAX_RUNS]
    shares = dict(zip(outcomes.runs, outcomes.metrics[name].shares().tolist(), strict=True))
    best = sorted(entries, key=lambda entry: -np.nan_to_num(shares[entry.key]))[:MAX_RUNS]
    return [entry for entry in entries if entry in best]


MAX_RETAINED = 300
"""Maximum number of datasets and cases in memory; the least recently used are evicted first."""
RETRY_SECONDS = 120.0
CASE_MARK = "case"
Images = Mapping[str, bytes]
DatasetSource = tuple[str, str | None]
"""(folder or ORG/NAME, revision), as a result names a dataset."""


@dataclass
class _OpenDataset:
    """An open dataset: the cases that may be shown and, on the Hub, their (file, row group)."""

    repository: Repository
    split: str
    may_show: frozenset[str]
    row_groups: dict[str, tuple[str, int]] = field(default_factory=dict)


class CaseImages:
    """Images by section and case. Thread-safe; `get` never waits for the network."""

    def __init__(self) -> None:
        self._asked: OrderedDict[tuple[object, ...], tuple[float, Future[Any]]] = OrderedDict()
        """(source, *key) -> request time in seconds and pending result; most recently used last."""
        self._lock = threading.Lock()
        self._workers = ThreadPoolExecutor(2, thread_name_prefix="case-images")

    def get(self, section: Section, case_id: str, extra_sources: Sequence[DatasetSource] = ()) -> Images | None:
        """Return the images of a case.

        Args:
            section: The section that the case belongs to; its results name the datasets to look in.
            case_id: The case.
            extra_sources: Further datasets to look in.

        Returns:
            Image id -> file content; empty if no image may or can be shown; None while images are
            being fetched.
        """
        if section.fingerprint is None:
            return {}
        waiting = False
        # Local datasets first: they answer at once.
        for source in _sources(section, extra_sources):
            opened = self._future(source, (section.split, section.fingerprint), partial(_open_dataset, source, section))
            dataset: _OpenDataset | None = opened.result() if opened.done() else None
            if dataset is not None and case_id in dataset.may_show:
                # Every case is a fetch of its own, so that one page does not download the whole
                # dataset.
                fetched = self._future(
                    source, (section.split, CASE_MARK, case_id), partial(_read_images, dataset, case_id)
                )
                if fetched.done() and fetched.result():
                    return dict(fetched.result())
                waiting |= not fetched.done()
            waiting |= not opened.done()
        return None if waiting else {}

    def _future(self, source: DatasetSource, key: tuple[str, ...], compute: Callable[[], Any]) -> Future[Any]:
        """Return the result of `compute`, pending or finished; start it if it is new.

        It is computed at once for a local dataset, and in the background otherwise.
        An empty result is retried after RETRY_SECONDS: the Hub may have been unavailable.
        """
        is_local, now_s = Path(source[0]).is_dir(), time.monotonic()
        with self._lock:
            asked_at_s, future = self._asked.get((source, *key), (now_s, None))
            is_new = future is None or (future.done() and not future.result() and now_s - asked_at_s > RETRY_SECONDS)
            if future is None or is_new:
                future = Future() if is_local else self._workers.submit(compute)
                self._asked[(source, *key)] = (now_s, future)
            # The least recently used are dropped first.
            self._asked.move_to_end((source, *key))
            while len(self._asked) > MAX_RETAINED:
                self._asked.popitem(last=False)
        if is_local and is_new:
            future.set_result(compute())
        return future


def trusted_datasets(board: Board, section: Section) -> list[DatasetSource]:
    """List the datasets that the board's owner trusts and that contain a section's questions.

    Their images may be shown, too.

    Args:
        board: The board.
        section: The question set.
    """
    return [
        (str(split.benchmark.repo), split.benchmark.revision)
        for split in board.trusted.splits
        if split.benchmark.fingerprint == section.fingerprint and split.benchmark.repo
    ]


def _sources(section: Section, extra_sources: Sequence[DatasetSource]) -> list[DatasetSource]:
    sources = set(extra_sources) | {
        (str(entry.result.benchmark.repo), entry.result.benchmark.revision)
        for entry in section.entries
        if entry.result.benchmark.repo
    }
    return sorted(sources, key=lambda source: (not Path(source[0]).is_dir(), source[0], source[1] or ""))


def _open_dataset(source: DatasetSource, section: Section) -> _OpenDataset | None:
    """Open a dataset; None unless it has images and exactly the section's questions."""
    try:
        repository = open_repository(source[0], None if Path(source[0]).is_dir() else source[1])
        questions = repository.questions(section.split)
        if not repository.has_images or fingerprint_questions(questions) != section.fingerprint:
            return None
    except Exception:  # no images for a dataset that cannot be read
        return None
    return _OpenDataset(repository, section.split, _redistributable_cases(questions, section, repository))


def _redistributable_cases(questions: pd.DataFrame, section: Section, repository: Repository) -> frozenset[str]:
    """Select the cases whose images may be shown.

    These are all cases if section and dataset are both phantoms, and none if only one of them is.
    Otherwise they are the cases whose images all have a licence that permits redistribution.
    """
    cases = questions["case_id"].astype(str)
    if section.kind == "phantom" or repository.origin == "phantom":
        return frozenset(cases) if section.kind == "phantom" and repository.origin == "phantom" else frozenset()
    if "image_license" not in questions.columns:
        return frozenset()
    open_licences = {value: allows_redistribution(value) for value in questions["image_license"].dropna().unique()}
    allowed = questions["image_license"].map(lambda value: open_licences.get(value, False))
    # A case with one image that may not be redistributed is not shown at all.
    return frozenset(cases[allowed]) - frozenset(cases[~allowed])


def _read_images(dataset: _OpenDataset, case_id: str) -> Images:
    try:
        if dataset.repository.revision is not None:
            return _read_from_hub(dataset, case_id)
        (case,) = dataset.repository.cases(dataset.split, [case_id])
    except (BadInput, OSError, ValueError, KeyError):
        return {}
    return case.images


def _read_from_hub(dataset: _OpenDataset, case_id: str) -> Images:
    """Read a case from one row group of a remote file: datasets are large, and visitors view only a
    few cases.
    """
    from huggingface_hub import HfFileSystem

    repository = dataset.repository
    system = HfFileSystem(endpoint=endpoint())  # the current endpoint, as everywhere in medprobe
    base = f"datasets/{repository.data}@{repository.revision}"
    if not dataset.row_groups:
        for name in repository.file_names("cases", dataset.split):
            # Blocks of 1 MiB: larger ones would download images of cases that are not viewed.
            with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
                for group in range(file.num_row_groups):
                    ids = file.read_row_group(group, columns=["case_id"])["case_id"].to_pylist()
                    dataset.row_groups |= {str(case): (name, group) for case in ids}
    name, group = dataset.row_groups[case_id]
    with system.open(f"{base}/{name}", "rb", block_size=1 << 20) as remote, pq.ParquetFile(remote) as file:
        table = file.read_row_group(group, columns=["case_id", "image_ids", "images"])
    row = [str(case) for case in table["case_id"].to_pylist()].index(case_id)
    ids, images = table["image_ids"][row].as_py(), table["images"][row].as_py()
    return {image_id: image["bytes"] for image_id, image in zip(ids, images, strict=True)}
