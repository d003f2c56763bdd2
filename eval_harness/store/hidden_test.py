"""Score a file against hidden answers: GMAI-MMBench's test, whose answer key is in a private repository.

What leaves is one number, rounded, a few times a day for each user: enough to know where a model stands, too little to learn the key
from (docs/results_store.md says how little). It leaves once the ledger says who had it, of which file, on which day, so that neither a
crash nor many requests at once give more of them. What goes wrong with the key is said without a word of it. See also: sign-in and the
page (the board's).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput, clip
from dataset_builders.files import temporary_folder
from dataset_builders.fingerprints import fingerprint_questions
from dataset_builders.hub.client import connect_with_token, hide_progress_bars, hub_errors, with_retries
from dataset_builders.hub.repository import open_repository
from dataset_builders.schema import DATASET_SCHEMA_VERSION
from eval_harness.answer_files.predictions import Predictions, read_predictions
from eval_harness.answer_files.untrusted import MAX_PROBLEMS, format_names, printable_line
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.answer_table import answer_frame
from eval_harness.derive.reading import complete_answers, read_responses
from eval_harness.derive.scoring import compute_units
from eval_harness.records.limits import limits_for
from eval_harness.records.names import model_name_problem, normalize_name
from eval_harness.store.ledger import Document, open_ledger, require_private_head
from eval_harness.store.sandbox import run_in_turn, run_sandboxed
from eval_harness.store.scan import is_hub_store

HIDDEN_FORMAT = next(name for name in BENCHMARKS if eval_spec(name).hidden_split is not None)
HIDDEN_SPLIT, HIDDEN_METRICS = str(eval_spec(HIDDEN_FORMAT).hidden_split), eval_spec(HIDDEN_FORMAT).hidden_metrics
"""The benchmark with a hidden split, and metric -> question type."""
SCORE_DECIMALS = 1
"""Decimals of the score. One gives 1,001 values: at most 10 bits per scoring (the exact score of 21,281 questions would have 14.4)."""
MAX_LISTED_PROBLEMS = 20
"""Maximum number of problems listed in a message."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HiddenScore:
    """`value`: the `metric` over the `questions` it is about, percent with one decimal. `remaining`: scorings left on `day` (UTC)."""

    value: float
    questions: int
    remaining: int
    day: str
    metric: str


class HiddenTest:
    """A test with a private key. Thread-safe; any number of processes may share a ledger.

    `questions`: the public dataset, `answers`: the private one that `medprobe build` wrote beside it, `ledger`: where scorings are kept
    (private as well); each a folder, or ORG/NAME on the Hub. `per_day`: scorings for each user and day (UTC). `token`: reads the answers
    and writes the ledger; None is this machine's. `metric`: `accuracy` (single choice; the default where there are such questions) or
    `mcq_accuracy` (multiple choice); they share one limit.
    """

    def __init__(
        self,
        questions: str,
        answers: str,
        ledger: str,
        per_day: int = 2,
        token: str | None = None,
        metric: str | None = None,
    ) -> None:
        if per_day < 1:
            raise BadInput(f"hidden test: {per_day} scorings a day: give at least 1.")
        if metric is not None and metric not in HIDDEN_METRICS:
            raise BadInput(f"hidden test: the metric {clip(metric)} is not one of {', '.join(HIDDEN_METRICS)}.")
        self.per_day = per_day
        self._sources = (questions, answers)
        self._token, self._metric = token, metric
        self._ledger = open_ledger(ledger, token)

    def check(self, upload: Path, client: str = "") -> list[str]:
        """The problems of a file of answers, each with its line. Uses no scoring, and reads no answer of the test.

        Raises BadInput if the test itself cannot be opened.
        """
        return self._read(upload, client)[1]

    def ids(self) -> list[str]:
        """The ids of the questions that a file must answer. Raises BadInput if the test cannot be opened."""
        return self._test.questions["question_id"].astype(str).tolist()

    def remaining(self, user: str) -> int:
        """Scorings that a user has left today. Raises BadInput for an invalid user name, and if the ledger cannot be read."""
        name = normalize_user(user)
        return self._left(past_scorings(self._ledger.look(ledger_path(name))), today())

    def score(self, upload: Path, model: str, user: str) -> HiddenScore:
        """The score of a file that answers every question of the test. Scoring the same answers again is free.

        Raises BadInput: not signed in, a name that cannot stand, problems of the file, the day's scorings used up, a ledger or a key that
        cannot be reached. Unless it says otherwise, nothing was counted.
        """
        name = normalize_user(user)
        model = normalize_name(model)
        if wrong := model_name_problem(model):
            raise BadInput(wrong)
        read, problems = self._read(upload, name)
        if problems:
            more = f"; and {len(problems) - MAX_LISTED_PROBLEMS} more" if len(problems) > MAX_LISTED_PROBLEMS else ""
            raise BadInput(f"{'; '.join(problems[:MAX_LISTED_PROBLEMS])}{more}. Nothing was scored or counted.")
        test, key = self._test, self._key
        answers = read_responses(
            complete_answers(answer_frame(read.rows), test.questions, 1), test.questions, HIDDEN_FORMAT
        )
        value, count = _compute_score(test, key, answers)
        scoring: Document = {
            "model": model,
            "sha256": _file_digest(upload),
            "choices": _choices_digest(answers),
            "test": {"name": test.name, "questions": test.fingerprint, "key": key.version, "metric": key.metric},
            "questions": count,
            "score": value,
        }

        def change(document: Document | None) -> tuple[HiddenScore, Document | None]:
            """The score from the ledger, or the one to be written there."""
            day, scorings = today(), past_scorings(document)
            known = next((each for each in scorings if _is_same_scoring(each, scoring)), None)
            if known is not None:
                return HiddenScore(known["score"], known["questions"], self._left(scorings, day), day, key.metric), None
            if not self._left(scorings, day):
                tomorrow = datetime.fromisoformat(day).date() + timedelta(days=1)
                raise BadInput(
                    f"{name}: the scorings of {day} (UTC) are used up, {self.per_day} a day. The next is possible on {tomorrow} from "
                    "00:00 UTC; a file that was scored before can be asked for again at any time."
                )
            scorings.append(scoring | {"time": datetime.now(UTC).isoformat(timespec="seconds"), "day": day})
            return HiddenScore(value, count, self._left(scorings, day), day, key.metric), {
                "user": name,
                "scorings": scorings,
            }

        return self._ledger.change(ledger_path(name), change, f"A scoring of {name}")

    def _left(self, scorings: list[Document], day: str) -> int:
        return max(0, self.per_day - sum(each["day"] == day for each in scorings))

    @cached_property
    def _test(self) -> HiddenQuestions:
        return open_test(self._sources[0])

    @cached_property
    def _key(self) -> HiddenKey:
        return load_key(self._sources[1], self._test, self._token, self._metric)

    def _read(self, upload: Path, client: str) -> tuple[Predictions, list[str]]:
        test = self._test
        try:
            limits = limits_for(len(test.questions))
            read = run_in_turn(client, run_sandboxed, limits, read_predictions, upload, test.questions)
        except (BadInput, OSError) as error:
            return Predictions(), [_hide_path(str(error), upload)]
        problems = [_hide_path(line, upload) for line in read.problems]
        if read.samples > 1:
            problems.append(f"{upload.name}: holds {read.samples} samples for a question. Give one answer for each.")
        silent = [row["question_id"] for row in read.rows if row["delivery"] != "answered"]
        if silent:
            problems.append(
                f"{upload.name}: {_format_count(silent, test)} without a response ({format_names(silent)}). Ask the model again; where it "
                "gives none, write so in words."
            )
        answered = {row["question_id"] for row in read.rows}
        missing = [name for name in test.questions["question_id"].astype(str) if name not in answered]
        if missing and read.rows and len(read.problems) < MAX_PROBLEMS:
            problems.append(
                f"{upload.name}: {_format_count(missing, test)} not answered ({format_names(missing)}). A file must answer every "
                "question of the test."
            )
        return read, [printable_line(line) for line in problems]


def _format_count(names: list[str], test: HiddenQuestions) -> str:
    return f"{len(names):,} of {len(test.questions):,} questions {'is' if len(names) == 1 else 'are'}"


def _hide_path(line: str, upload: Path) -> str:
    """A problem by the file's name: the upload's path on the server is not shown."""
    return line.replace(str(upload), upload.name).rstrip(".")


def _compute_score(test: HiddenQuestions, key: HiddenKey, answers: pd.DataFrame) -> tuple[float, int]:
    """The metric over all its questions, rounded; and how many they are. No pick at all in multiple choice is 0."""
    keyed = test.questions.copy()
    found = [key.answers.get(str(name), []) for name in keyed["question_id"]]
    keyed["answer"] = pd.Series(found, index=keyed.index, dtype=object)
    try:
        counted = compute_units(HIDDEN_FORMAT, keyed, answers)
        counted = counted[counted["metric"] == key.metric]
        there = float(counted["denominator"].sum())
        value = 100 * float(counted["numerator"].sum()) / there if there else 0.0
    except Exception as error:  # its message may contain part of the key
        log.error("hidden test: scoring failed with %s", type(error).__name__)
        raise BadInput("hidden test: the scoring failed, and nothing was counted. Tell the board's owner.") from None
    return round(value, SCORE_DECIMALS), len(counted)


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _choices_digest(answers: pd.DataFrame) -> str:
    """Digest of the choices: equal for files with the same choices, regardless of wording and order."""
    rows = sorted(
        (str(name), sorted(int(index) for index in choice))
        for name, choice in zip(answers["question_id"], answers["choice"], strict=True)
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


USER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}", re.ASCII)
"""Superset of the user names that the Hub allows; they become file names, so no slash and no leading dot."""


def normalize_user(user: str) -> str:
    """A user's name in the ledger. Raises BadInput for an empty name, and for one that could be a path."""
    if not isinstance(user, str) or not user.strip():
        raise BadInput("not signed in: sign in with your Hugging Face account, then ask again.")
    if not USER_NAME.fullmatch(user):
        raise BadInput(f"user {clip(user)}: is not a Hugging Face user name. Sign in again.")
    return user.lower()  # user names of the Hub are case-insensitive


def ledger_path(user: str) -> str:
    return f"users/{user}.json"


def past_scorings(document: Document | None) -> list[Document]:
    """The scorings of a user, oldest first. Raises BadInput for a damaged document: it is not taken for an empty one."""
    if document is None:
        return []
    scorings = document.get("scorings")
    needed = {"day", "sha256", "choices", "test", "score", "questions"}
    if not isinstance(scorings, list) or not all(isinstance(each, dict) and needed <= each.keys() for each in scorings):
        raise BadInput("hidden test: the ledger of this user is damaged. Tell the board's owner; nothing was counted.")
    return list(scorings)


def _is_same_scoring(known: Document, scoring: Document) -> bool:
    """True for a scoring of the same file, or of one with the same choices, by the same test and key."""
    same_file = known["sha256"] == scoring["sha256"] or known["choices"] == scoring["choices"]
    return same_file and known["test"] == scoring["test"]


def today() -> str:
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class HiddenQuestions:
    """The public side of the test: every question that a file must answer, without answers."""

    name: str
    questions: pd.DataFrame
    fingerprint: str


@dataclass(frozen=True)
class HiddenKey:
    """The private side. `version` identifies a key without revealing anything about it."""

    answers: Mapping[str, list[int]]
    metric: str
    version: str


def open_test(folder: str) -> HiddenQuestions:
    """The public side of a test (a folder, or ORG/NAME on the Hub). Raises BadInput if it has no split with hidden answers."""
    repository = open_repository(folder)
    if repository.family != HIDDEN_FORMAT or HIDDEN_SPLIT not in repository.splits:
        raise BadInput(f"{folder}: has no split {HIDDEN_SPLIT} of {HIDDEN_FORMAT}, the one test with hidden answers.")
    questions = repository.questions(HIDDEN_SPLIT)
    # Drop any answers in the public rows: code that reads a file must not know one.
    questions["answer"] = pd.Series([[] for _ in range(len(questions))], index=questions.index, dtype=object)
    return HiddenQuestions(repository.name, questions, fingerprint_questions(questions))


def load_key(where: str, test: HiddenQuestions, token: str | None, metric: str | None) -> HiddenKey:
    """The private answers. Error messages about them do not quote them."""
    if is_hub_store(where):
        api = connect_with_token(token)
        with (
            temporary_folder(Path(tempfile.gettempdir()), "medprobe-key-") as folder,
            hide_progress_bars(),
            hub_errors(where, "read the answers"),
        ):
            head = with_retries(lambda: require_private_head(api, where, "the answers of a test"))
            names = ["manifest.json", "answers/*.parquet"]
            # Into a temporary folder: the key must not stay in the cache of a public board.
            with_retries(
                lambda: api.snapshot_download(
                    where, repo_type="dataset", revision=head, allow_patterns=names, local_dir=folder
                )
            )
            return _parse_key(folder, where, head, test, metric)
    files = sorted(Path(where).glob("answers/*.parquet"))
    version = ",".join(str(file.stat().st_mtime_ns) for file in files)
    return _parse_key(Path(where), where, version, test, metric)


def _parse_key(folder: Path, where: str, version: str, test: HiddenQuestions, metric: str | None) -> HiddenKey:
    def wrong(what: str) -> BadInput:
        return BadInput(f"{where}: {what}. Build the dataset and its answers again.")

    rows: list[tuple[str, list[int]]] = []
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if manifest["schema_version"] != DATASET_SCHEMA_VERSION:
            raise ValueError("another version")
        name = manifest["answers_of"]
        for file in sorted(folder.glob("answers/*.parquet")):
            frame = pd.read_parquet(file, columns=["question_id", "answer"])
            rows += [
                (str(question), [int(index) for index in indices])
                for question, indices in zip(frame["question_id"], frame["answer"], strict=True)
            ]
    except Exception as error:  # as above: without the error's message
        log.error("hidden test: the answers cannot be read (%s)", type(error).__name__)
        raise wrong("is not a folder of hidden answers (manifest.json, answers/*.parquet)") from None
    answers = dict(rows)
    public: dict[str, Any] = {str(row.question_id): row for row in test.questions.itertuples(index=False)}
    if name != test.name:
        raise wrong(f"holds the answers of {clip(name)}, and the questions are of {test.name}")
    if not answers or len(answers) < len(rows) or not answers.keys() <= public.keys():
        raise wrong("its answers are not those of the test's questions")
    for question, indices in answers.items():
        row = public[question]
        several = row.question_type == "multiple"
        if not indices or not set(indices) <= set(range(len(row.options))) or (len(indices) > 1 and not several):
            raise wrong("holds an answer that is no option of its question")
    types = {public[question].question_type for question in answers}
    metric = metric or ("accuracy" if "single" in types else "mcq_accuracy")
    if HIDDEN_METRICS[metric] not in types:
        raise BadInput(
            f"hidden test: {where} holds no answer to a question of type {HIDDEN_METRICS[metric]} ({metric})."
        )
    return HiddenKey(answers, metric, version)
