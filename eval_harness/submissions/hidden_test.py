"""Scoring against answers that nobody may see: GMAI-MMBench's test, whose key lies in a private repository.

What leaves is one number, rounded, a few times a day for each user: enough to know where a model stands, too little to learn the key
from (docs/submitting.md says how little). A scoring is booked in the ledger before it is computed, so that neither a crash nor many
requests at once give more of them. See also: how the ledger is kept (`scoring_ledger.py`), sign-in and the page (the board's).
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import fingerprint_v1
from dataset_builders.hub.client import connect, connect_with_token, hub_errors, quiet, with_retries
from dataset_builders.hub.repository import open_repository
from dataset_builders.sources.problems import clip
from dataset_builders.temporary import temporary_folder
from eval_harness.answers import read_answers
from eval_harness.benchmarks import spec
from eval_harness.results import normal_name, wrong_model_name
from eval_harness.results.store_source import is_hub_store
from eval_harness.runs.scoring import answer_frame
from eval_harness.scores import units
from eval_harness.submissions.predictions import Predictions, read_predictions
from eval_harness.submissions.scoring_ledger import Document, Read, open_ledger, private_head
from eval_harness.submissions.untrusted.envelope import weight
from eval_harness.submissions.untrusted.files import MAX_PROBLEMS, printable
from eval_harness.submissions.untrusted.sandbox import in_turn

FORMAT = next(name for name in BENCHMARKS if spec(name).hidden_split is not None)
SPLIT, METRICS = str(spec(FORMAT).hidden_split), spec(FORMAT).hidden_metrics
"""The benchmark with a hidden split, and metric -> the type of question it is about."""
DECIMALS = 1
"""Of the score. With one, it has 1,001 values: at most 10 bits a scoring (the exact score of 21,281 questions would have 14.4)."""
USER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}", re.ASCII)
"""What the Hub allows in a user name, and a little more; it becomes a file name, so no slash and no dot in front."""
MOST_NAMED = 50
"""Users that the ledger names for one set of choices, the newest: a file that everybody sends would fill it otherwise."""
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


@dataclass(frozen=True)
class _Asked:
    """The public side of the test: every question that a file must answer, without answers."""

    name: str
    questions: pd.DataFrame
    fingerprint: str


@dataclass(frozen=True)
class _Key:
    """The private side. `version` tells one key from the next without saying anything about it."""

    answers: Mapping[str, list[int]]
    metric: str
    version: str


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
            raise BadInput(f"hidden test: the metric {clip(metric)} is none of {', '.join(METRICS)}.")
        self.per_day = per_day
        self._places = (questions, answers)
        self._token, self._metric = token, metric
        self._ledger = open_ledger(ledger, token)
        self._lock = threading.Lock()
        self._opened: _Asked | None = None
        self._read_key: _Key | None = None

    def check(self, upload: Path) -> list[str]:
        """What is wrong with a file of answers, each with its line. Costs no scoring, and looks at no answer of the test.

        Raises BadInput when the test itself cannot be opened.
        """
        return self._read(upload, self._asked())[1]

    def ids(self) -> list[str]:
        """The ids of the questions that a file must answer. Raises BadInput when the test cannot be opened."""
        return self._asked().questions["question_id"].astype(str).tolist()

    def remaining(self, user: str) -> int:
        """Scorings that a user has left today. Raises BadInput for what is no user name, and when the ledger cannot be read."""
        name = _user(user)
        return self._left(_scorings(self._ledger.look(_path(name))), _now())

    def score(self, upload: Path, model: str, user: str) -> HiddenScore:
        """The score of a file that answers every question of the test. What this user had scored before costs nothing again.

        Raises BadInput: not signed in, a name that cannot stand, problems of the file, the day's scorings used up, a ledger or a key that
        cannot be reached. Unless it says otherwise, nothing was counted.
        """
        name = _user(user)
        model = normal_name(model)
        if wrong := wrong_model_name(model):
            raise BadInput(wrong)
        asked = self._asked()
        read, problems = self._read(upload, asked)
        if problems:
            more = f"; and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
            raise BadInput(f"{'; '.join(problems[:SHOWN])}{more}. Nothing was scored or counted.")
        key = self._key(asked)
        answers = read_answers(answer_frame(read.records.values()), asked.questions, FORMAT, "ours")
        entry: Document = {
            "model": model,
            "sha256": _digest(upload),
            "choices": _choices_digest(answers),
            "test": {"name": asked.name, "questions": asked.fingerprint, "key": key.version, "metric": key.metric},
        }
        booked, remaining, day = self._ledger.change(
            lambda look: self._book(look, name, entry), f"Book a scoring of {name}"
        )
        if booked["score"] is not None:
            return HiddenScore(booked["score"], booked["questions"], remaining, day, key.metric)
        value, count = _score(asked, key, answers)
        try:
            self._ledger.change(lambda look: _remember(look, name, booked, value, count), f"Score of {name}")
        except BadInput as error:
            # The scoring is booked, so nothing is lost but the memory of it: the same file is computed again, at no cost, next time.
            log.warning("hidden test: the score of %s was not remembered (%s)", name, error)
        return HiddenScore(value, count, remaining, day, key.metric)

    def _left(self, scorings: list[Document], now: datetime) -> int:
        return max(0, self.per_day - sum(entry["day"] == _day(now) for entry in scorings))

    def _book(self, look: Read, user: str, entry: Document) -> tuple[tuple[Document, int, str], dict[str, Document]]:
        """Find the booking of this file, or make one. A booking without a score is of a scoring that was cut short: it is used again."""
        now = _now()
        scorings = _scorings(look(_path(user)))
        for known in scorings:
            if known["test"] == entry["test"] and (
                known["sha256"] == entry["sha256"] or known["choices"] == entry["choices"]
            ):
                return (known, self._left(scorings, now), _day(now)), {}
        if self._left(scorings, now) == 0:
            raise BadInput(
                f"{user}: {'the one scoring' if self.per_day == 1 else f'the {self.per_day} scorings'} of {_day(now)} (UTC) "
                f"{'is' if self.per_day == 1 else 'are'} used up. The next is possible on {_day(now + timedelta(days=1))} from "
                f"00:00 UTC (in {_until_tomorrow(now)}); a file that was scored before can be asked for again at any time."
            )
        contents = f"contents/{entry['choices']}.json"
        others = [other for other in (look(contents) or {}).get("users", []) if other != user][-MOST_NAMED:]
        booked = entry | {
            "time": now.isoformat(timespec="seconds"),
            "day": _day(now),
            "same_answers_as": others,
            "questions": None,
            "score": None,
        }
        scorings.append(booked)
        documents: dict[str, Document] = {
            contents: {"users": [*others, user]},
            _path(user): {"user": user, "scorings": scorings},
        }
        return (booked, self._left(scorings, now), _day(now)), documents

    def _asked(self) -> _Asked:
        with self._lock:
            if self._opened is None:
                repository = open_repository(self._places[0])
                if repository.format != FORMAT or SPLIT not in repository.splits:
                    raise BadInput(
                        f"{self._places[0]}: has no split {SPLIT} of {FORMAT}, the one test with hidden answers."
                    )
                questions = repository.questions(SPLIT)
                # Whatever the public rows say: nothing that reads a file may know an answer.
                questions["answer"] = pd.Series(
                    [[] for _ in range(len(questions))], index=questions.index, dtype=object
                )
                self._opened = _Asked(repository.name, questions, fingerprint_v1(questions))
            return self._opened

    def _key(self, asked: _Asked) -> _Key:
        with self._lock:
            if self._read_key is None:
                self._read_key = _read_key(self._places[1], asked, self._token, self._metric)
            return self._read_key

    def _read(self, upload: Path, asked: _Asked) -> tuple[Predictions, list[str]]:
        try:
            read = in_turn(weight([upload]), len(asked.questions), read_predictions, upload, asked.questions)
        except BadInput as error:
            return Predictions(), [_told(str(error), upload)]
        problems = [_told(line, upload) for line in read.problems]
        if read.samples > 1:
            problems.append(f"{upload.name}: holds {read.samples} samples for a question. Give one answer for each.")
        silent = [name for (name, _), record in read.records.items() if record["status"] == "failed"]
        if silent:
            problems.append(
                f"{upload.name}: {_count(silent, asked)} without a response ({_listed(silent)}). Ask the model again; where it "
                "gives none, write so in words."
            )
        answered = {name for name, _ in read.records}
        missing = [name for name in asked.questions["question_id"].astype(str) if name not in answered]
        if missing and read.records and len(read.problems) < MAX_PROBLEMS:
            problems.append(
                f"{upload.name}: {_count(missing, asked)} not answered ({_listed(missing)}). A file must answer every question of "
                "the test."
            )
        return read, [printable(line) for line in problems]


def _count(names: list[str], asked: _Asked) -> str:
    return f"{len(names):,} of {len(asked.questions):,} questions {'is' if len(names) == 1 else 'are'}"


def _listed(names: list[str]) -> str:
    return ", ".join(clip(name, 40) for name in names[:5]) + (", ..." if len(names) > 5 else "")


def _told(line: str, upload: Path) -> str:
    """A problem by the file's name: where an upload lies on the server is nobody's business."""
    return line.replace(str(upload), upload.name).rstrip(".")


def _user(user: str) -> str:
    """A user's name as the ledger writes it. BadInput for nobody, and for what could be a path."""
    if not isinstance(user, str) or not user.strip():
        raise BadInput("not signed in: sign in with your Hugging Face account, then ask again.")
    if not USER_NAME.fullmatch(user):
        raise BadInput(f"user {clip(user)}: is no Hugging Face user name. Sign in again.")
    return user.lower()  # the Hub does not tell Ann from ann


def _path(user: str) -> str:
    return f"users/{user}.json"


def _scorings(document: Document | None) -> list[Document]:
    """The scorings of a user, oldest first. BadInput for a document that somebody has damaged: it is not taken for an empty one."""
    if document is None:
        return []
    scorings = document.get("scorings")
    needed = {"day", "sha256", "choices", "test", "score", "questions"}
    if not isinstance(scorings, list) or not all(isinstance(each, dict) and needed <= each.keys() for each in scorings):
        raise BadInput("hidden test: the ledger of this user is damaged. Tell the board's owner; nothing was counted.")
    return list(scorings)


def _remember(look: Read, user: str, booked: Document, value: float, count: int) -> tuple[None, dict[str, Document]]:
    """Write the score to its booking; once it stands there it stays."""
    document = look(_path(user))
    scorings = _scorings(document)
    for number, entry in enumerate(scorings):
        if entry["test"] == booked["test"] and entry["sha256"] == booked["sha256"] and entry["score"] is None:
            scorings[number] = entry | {"score": value, "questions": count}
            return None, {_path(user): {"user": user, "scorings": scorings}}
    return None, {}


def _score(asked: _Asked, key: _Key, answers: pd.DataFrame) -> tuple[float, int]:
    """The metric over all its questions, rounded; and how many they are. No pick at all in multiple choice is 0."""
    keyed = asked.questions.copy()
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


def _read_key(where: str, asked: _Asked, token: str | None, metric: str | None) -> _Key:
    """The private answers. What is wrong with them is said without a word of them."""
    if is_hub_store(where):
        api = connect(token) if token else connect_with_token()
        with (
            temporary_folder(Path(tempfile.gettempdir()), "medprobe-key-") as place,
            quiet(),
            hub_errors(where, "read the answers"),
        ):
            head = with_retries(lambda: private_head(api, where, "the answers of a test"))
            names = ["manifest.json", "answers/*.parquet"]
            # Into a folder that goes at once: the cache of a served board is no place for a key.
            with_retries(
                lambda: api.snapshot_download(
                    where, repo_type="dataset", revision=head, allow_patterns=names, local_dir=place
                )
            )
            return _key_of(place, where, head, asked, metric)
    files = sorted(Path(where).glob("answers/*.parquet"))
    version = ",".join(str(file.stat().st_mtime_ns) for file in files)
    return _key_of(Path(where), where, version, asked, metric)


def _key_of(folder: Path, where: str, version: str, asked: _Asked, metric: str | None) -> _Key:
    def wrong(what: str) -> BadInput:
        return BadInput(f"{where}: {what}. Build the dataset and its answers again.")

    rows: list[tuple[str, list[int]]] = []
    try:
        name = json.loads((folder / "manifest.json").read_bytes())["answers_of"]
        for file in sorted(folder.glob("answers/*.parquet")):
            frame = pd.read_parquet(file, columns=["question_id", "answer"])
            rows += [
                (str(question), [int(place) for place in places])
                for question, places in zip(frame["question_id"], frame["answer"], strict=True)
            ]
    except Exception as error:  # as above: no word of the error itself
        log.error("hidden test: the answers cannot be read (%s)", type(error).__name__)
        raise wrong("is no folder of hidden answers (manifest.json, answers/*.parquet)") from None
    answers = dict(rows)
    public: dict[str, Any] = {str(row.question_id): row for row in asked.questions.itertuples(index=False)}
    if name != asked.name:
        raise wrong(f"holds the answers of {clip(name)}, and the questions are of {asked.name}")
    if not answers or len(answers) < len(rows) or not answers.keys() <= public.keys():
        raise wrong("its answers are not those of the test's questions")
    for question, places in answers.items():
        row = public[question]
        several = row.question_type == "multiple"
        if not places or not set(places) <= set(range(len(row.options))) or (len(places) > 1 and not several):
            raise wrong("holds an answer that is no option of its question")
    types = {public[question].question_type for question in answers}
    metric = metric or ("accuracy" if "single" in types else "mcq_accuracy")
    if METRICS[metric] not in types:
        raise BadInput(f"hidden test: {where} holds no answer to a question of type {METRICS[metric]} ({metric}).")
    return _Key(answers, metric, version)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _choices_digest(answers: pd.DataFrame) -> str:
    """The same for files that choose the same, however they say it and in whatever order."""
    rows = sorted(
        (str(name), sorted(int(place) for place in choice))
        for name, choice in zip(answers["question_id"], answers["choice"], strict=True)
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC)


def _day(now: datetime) -> str:
    return now.date().isoformat()


def _until_tomorrow(now: datetime) -> str:
    minutes = 24 * 60 - (now.hour * 60 + now.minute)
    return f"{minutes // 60} h {minutes % 60} min"
