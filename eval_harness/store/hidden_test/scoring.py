"""Scores a file against a private key.

What leaves is one number, rounded, a few times a day for each user: enough to know where a model stands, too little to learn the key
from (docs/results_store.md says how little). See also: what is booked before (`ledger.py`), sign-in and the page (the board's).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from dataset_builders.errors import BadInput, clip
from eval_harness.derive.answer_table import answer_frame
from eval_harness.derive.answers import read_answers
from eval_harness.derive.reading import complete
from eval_harness.derive.scoring import units
from eval_harness.records.limits import limits_for
from eval_harness.records.names import normal_name, wrong_model_name
from eval_harness.store.answer_files import Predictions, read_predictions
from eval_harness.store.hidden_test.ledger import (
    Document,
    book,
    left,
    now_utc,
    open_ledger,
    path_of,
    remember,
    scorings_of,
    user_name,
)
from eval_harness.store.hidden_test.private_key import FORMAT, METRICS, Key, Test, open_test, read_key
from eval_harness.store.sandbox import call, in_turn
from eval_harness.store.untrusted import MAX_PROBLEMS, printable

DECIMALS = 1
"""Of the score. With one, it has 1,001 values: at most 10 bits a scoring (the exact score of 21,281 questions would have 14.4)."""
SHOWN = 20
"""Problems that one message spells out."""

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

    `questions`: the public dataset, `answers`: the private one that `medprobe build` wrote beside it, `ledger`: where scorings are booked
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
        if metric is not None and metric not in METRICS:
            raise BadInput(f"hidden test: the metric {clip(metric)} is not one of {', '.join(METRICS)}.")
        self.per_day = per_day
        self._sources = (questions, answers)
        self._token, self._metric = token, metric
        self._ledger = open_ledger(ledger, token)
        self._lock = threading.Lock()
        self._opened: Test | None = None
        self._read_key: Key | None = None

    def check(self, upload: Path, client: str = "") -> list[str]:
        """What is wrong with a file of answers, each with its line. Costs no scoring, and looks at no answer of the test.

        Raises BadInput when the test itself cannot be opened.
        """
        return self._read(upload, self._open_test(), client)[1]

    def ids(self) -> list[str]:
        """The ids of the questions that a file must answer. Raises BadInput when the test cannot be opened."""
        return self._open_test().questions["question_id"].astype(str).tolist()

    def remaining(self, user: str) -> int:
        """Scorings that a user has left today. Raises BadInput for what is no user name, and when the ledger cannot be read."""
        name = user_name(user)
        return left(scorings_of(self._ledger.look(path_of(name))), self.per_day, now_utc())

    def score(self, upload: Path, model: str, user: str) -> HiddenScore:
        """The score of a file that answers every question of the test. What this user had scored before costs nothing again.

        Raises BadInput: not signed in, a name that cannot stand, problems of the file, the day's scorings used up, a ledger or a key that
        cannot be reached. Unless it says otherwise, nothing was counted.
        """
        name = user_name(user)
        model = normal_name(model)
        if wrong := wrong_model_name(model):
            raise BadInput(wrong)
        test = self._open_test()
        read, problems = self._read(upload, test, name)
        if problems:
            more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
            raise BadInput(f"{'; '.join(problems[:SHOWN])}{more}. Nothing was scored or counted.")
        key = self._key(test)
        answers = read_answers(complete(answer_frame(read.rows), test.questions, 1), test.questions, FORMAT)
        entry: Document = {
            "model": model,
            "sha256": _digest(upload),
            "choices": _choices_digest(answers),
            "test": {"name": test.name, "questions": test.fingerprint, "key": key.version, "metric": key.metric},
        }
        booked, remaining, day = self._ledger.change(
            lambda look: book(look, name, entry, self.per_day), f"Book a scoring of {name}"
        )
        if booked["score"] is not None:
            return HiddenScore(booked["score"], booked["questions"], remaining, day, key.metric)
        value, count = _score(test, key, answers)
        try:
            self._ledger.change(lambda look: remember(look, name, booked, value, count), f"Score of {name}")
        except BadInput as error:
            # The scoring is booked, so nothing is lost but the memory of it: the same file is computed again, at no cost, next time.
            log.warning("hidden test: the score of %s was not remembered (%s)", name, error)
        return HiddenScore(value, count, remaining, day, key.metric)

    def _open_test(self) -> Test:
        with self._lock:
            self._opened = self._opened or open_test(self._sources[0])
            return self._opened

    def _key(self, test: Test) -> Key:
        with self._lock:
            if self._read_key is None:
                self._read_key = read_key(self._sources[1], test, self._token, self._metric)
            return self._read_key

    def _read(self, upload: Path, test: Test, client: str) -> tuple[Predictions, list[str]]:
        try:
            limits = limits_for(len(test.questions))
            read = in_turn(client, call, limits, read_predictions, upload, test.questions)
        except (BadInput, OSError) as error:
            return Predictions(), [_told(str(error), upload)]
        problems = [_told(line, upload) for line in read.problems]
        if read.samples > 1:
            problems.append(f"{upload.name}: holds {read.samples} samples for a question. Give one answer for each.")
        silent = [row["question_id"] for row in read.rows if row["delivery"] != "answered"]
        if silent:
            problems.append(
                f"{upload.name}: {_count(silent, test)} without a response ({_listed(silent)}). Ask the model again; where it "
                "gives none, write so in words."
            )
        answered = {row["question_id"] for row in read.rows}
        missing = [name for name in test.questions["question_id"].astype(str) if name not in answered]
        if missing and read.rows and len(read.problems) < MAX_PROBLEMS:
            problems.append(
                f"{upload.name}: {_count(missing, test)} not answered ({_listed(missing)}). A file must answer every question of "
                "the test."
            )
        return read, [printable(line) for line in problems]


def _count(names: list[str], test: Test) -> str:
    return f"{len(names):,} of {len(test.questions):,} questions {'is' if len(names) == 1 else 'are'}"


def _listed(names: list[str]) -> str:
    return ", ".join(clip(name, 40) for name in names[:5]) + (", ..." if len(names) > 5 else "")


def _told(line: str, upload: Path) -> str:
    """A problem by the file's name: the upload's path on the server is not shown."""
    return line.replace(str(upload), upload.name).rstrip(".")


def _score(test: Test, key: Key, answers: pd.DataFrame) -> tuple[float, int]:
    """The metric over all its questions, rounded; and how many they are. No pick at all in multiple choice is 0."""
    keyed = test.questions.copy()
    found = [key.answers.get(str(name), []) for name in keyed["question_id"]]
    keyed["answer"] = pd.Series(found, index=keyed.index, dtype=object)
    try:
        counted = units(FORMAT, keyed, answers)
        counted = counted[counted["metric"] == key.metric]
        there = float(counted["denominator"].sum())
        value = 100 * float(counted["numerator"].sum()) / there if there else 0.0
    except Exception as error:  # what goes wrong here may carry a piece of the key in its words
        log.error("hidden test: scoring failed with %s", type(error).__name__)
        raise BadInput(
            "hidden test: the scoring failed. It is booked, and asking again for the same file costs nothing; tell the board's owner."
        ) from None
    return round(value, DECIMALS), len(counted)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _choices_digest(answers: pd.DataFrame) -> str:
    """The same for files that choose the same, however they say it and in whatever order."""
    rows = sorted(
        (str(name), sorted(int(index) for index in choice))
        for name, choice in zip(answers["question_id"], answers["choice"], strict=True)
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()
