"""Score a file of answers against a hidden key: GMAI-MMBench's test set.

The key is in a private repository. Only one rounded number is released, a few times per user and
day: enough to see how good a model is, too little to learn the key (docs/results_store.md gives the
bound). The score is returned only after the ledger has recorded user, file and day, so that neither
a crash nor concurrent requests yield extra scores. Errors about the key never quote it.

See also: signing in and the web page, which are parts of the board.
"""

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
from eval_harness.answer_files.untrusted import MAX_PROBLEMS, format_names, join_problems, printable_line
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import compute_units
from eval_harness.derive.reading import complete_answers, read_responses
from eval_harness.derive.run_files import answer_frame
from eval_harness.records.limits import limits_for, model_name_problem, normalize_name
from eval_harness.store.contents import is_hub_store
from eval_harness.store.ledger import Document, open_ledger, require_private_head
from eval_harness.store.sandbox import run_in_turn, run_sandboxed

HIDDEN_FORMAT = next(name for name in BENCHMARKS if eval_spec(name).hidden_split is not None)
HIDDEN_SPLIT, HIDDEN_METRICS = (
    str(eval_spec(HIDDEN_FORMAT).hidden_split),
    eval_spec(HIDDEN_FORMAT).hidden_metrics,
)
"""The benchmark that has a hidden split, this split, and its metrics with their question types."""
SCORE_DECIMALS = 1
"""Decimals of the score.

One decimal gives 1,001 possible values, which reveal at most 10 bits per scoring. The exact score
on 21,281 questions would reveal 14.4 bits.
"""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class HiddenScore:
    """A score, and how many scorings are left that day.

    Attributes:
        value: Percent, with one decimal.
        questions: Number of questions that `metric` covers.
        remaining: Scorings left on `day`.
        day: Date in UTC.
        metric: `accuracy` or `mcq_accuracy`.
    """

    value: float
    questions: int
    remaining: int
    day: str
    metric: str


class HiddenTest:
    """A test with a private key. Thread-safe; any number of processes may share a ledger.

    Args:
        questions: The public dataset (folder, or ORG/NAME on the Hub).
        answers: The private dataset of answers that `medprobe build` wrote next to it.
        ledger: Where scorings are recorded; private as well.
        per_day: Maximum scorings per user and day (UTC).
        token: Hub token that reads the answers and writes the ledger; None uses this machine's.
        metric: `accuracy` (questions with one correct option; the default if there are any) or
            `mcq_accuracy` (questions with several). Both count towards the same limit.

    Raises:
        BadInput: If `per_day` or `metric` is invalid.
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
        """Return the problems of a file of answers, each with its line.

        This does not count as a scoring, and does not read the key.

        Args:
            upload: The untrusted file.
            client: Rate-limit key; one file per client is read at a time.

        Raises:
            BadInput: If the test itself cannot be opened.
        """
        return self._read(upload, client)[1]

    def ids(self) -> list[str]:
        """Return the ids of the questions to answer.

        Raises BadInput if the test cannot be opened.
        """
        return self._test.questions["question_id"].astype(str).tolist()

    def remaining(self, user: str) -> int:
        """Return the number of scorings that a user has left today.

        Raises:
            BadInput: If the user name is invalid or the ledger cannot be read.
        """
        name = normalize_user(user)
        return self._left(past_scorings(self._ledger.look(ledger_path(name))), today())

    def score(self, upload: Path, model: str, user: str) -> HiddenScore:
        """Score a file that answers every question of the test.

        Scoring the same answers again does not count towards the limit.

        Args:
            upload: The untrusted file.
            model: Name of the model.
            user: Hub user name of the submitter.

        Raises:
            BadInput: If the user is not signed in, the name is invalid, the file has problems, the
                day's scorings are used up, or the ledger or the key cannot be reached. Unless the
                message says otherwise, nothing was counted.
        """
        name = normalize_user(user)
        model = normalize_name(model)
        if wrong := model_name_problem(model):
            raise BadInput(wrong)
        predictions, problems = self._read(upload, name)
        if problems:
            raise BadInput(f"{join_problems(problems)}. Nothing was scored or counted.")

        test, key = self._test, self._key
        answers = read_responses(
            complete_answers(answer_frame(predictions.rows), test.questions, 1),
            test.questions,
            HIDDEN_FORMAT,
        )
        value, count = _compute_score(test, key, answers)
        scoring: Document = {
            "model": model,
            # Stored so that scoring the same answers again can be recognized.
            "sha256": _file_digest(upload),
            "choices": _choices_digest(answers),
            "test": {
                "name": test.name,
                "questions": test.fingerprint,
                "key": key.version,
                "metric": key.metric,
            },
            "questions": count,
            "score": value,
        }

        def change(document: Document | None) -> tuple[HiddenScore, Document | None]:
            """Return the score from the ledger, or the new score and the document to write."""
            day, scorings = today(), past_scorings(document)
            earlier = next((past for past in scorings if _is_same_scoring(past, scoring)), None)
            if earlier is not None:
                return HiddenScore(
                    earlier["score"],
                    earlier["questions"],
                    self._left(scorings, day),
                    day,
                    key.metric,
                ), None

            # Checked while the ledger is changed, so that concurrent requests cannot exceed it.
            if not self._left(scorings, day):
                tomorrow = datetime.fromisoformat(day).date() + timedelta(days=1)
                raise BadInput(
                    f"{name}: you have used all {self.per_day} scorings of {day} (UTC). The next "
                    f"is possible on {tomorrow} from 00:00 UTC; a file that was scored before can "
                    "be scored again at any time."
                )

            scorings.append(scoring | {"time": datetime.now(UTC).isoformat(timespec="seconds"), "day": day})
            return HiddenScore(value, count, self._left(scorings, day), day, key.metric), {
                "user": name,
                "scorings": scorings,
            }

        return self._ledger.change(ledger_path(name), change, f"A scoring of {name}")

    def _left(self, scorings: list[Document], day: str) -> int:
        """Return how many scorings are left on a day."""
        return max(0, self.per_day - sum(scoring["day"] == day for scoring in scorings))

    @cached_property
    def _test(self) -> "HiddenQuestions":
        """The public questions; opened once."""
        return open_test(self._sources[0])

    @cached_property
    def _key(self) -> "HiddenKey":
        """The private key; loaded once."""
        return load_key(self._sources[1], self._test, self._token, self._metric)

    def _read(self, upload: Path, client: str) -> tuple[Predictions, list[str]]:
        """Read an upload in the sandbox; return its answers and its problems."""
        test = self._test
        try:
            limits = limits_for(len(test.questions))
            predictions = run_in_turn(client, run_sandboxed, limits, read_predictions, upload, test.questions)
        except BadInput as error:
            # Errors of the file name its path on the server; those of a full queue name no file.
            error.where = error.where and upload.name
            return Predictions(), [str(error)]
        except OSError as error:  # no process could be started
            return Predictions(), [f"{upload.name}: cannot be read now ({error.strerror}). Try again later"]

        problems = list(predictions.problems)
        if predictions.samples > 1:
            problems.append(f"has {predictions.samples} samples per question. Give one answer for each.")
        silent = [row["question_id"] for row in predictions.rows if row["delivery"] != "answered"]
        if silent:
            problems.append(
                f"{_format_count(silent, test)} without a response ({format_names(silent)}). Ask the "
                "model again; if it still gives none, say so in the response."
            )

        answered = {row["question_id"] for row in predictions.rows}
        missing = [name for name in test.questions["question_id"].astype(str) if name not in answered]
        if missing and predictions.rows and len(predictions.problems) < MAX_PROBLEMS:
            problems.append(
                f"{_format_count(missing, test)} not answered ({format_names(missing)}). A file must "
                "answer every question of the test."
            )

        return predictions, [printable_line(f"{upload.name}: {line}") for line in problems]


def _format_count(names: list[str], test: "HiddenQuestions") -> str:
    """Format "N of M questions is/are"."""
    return f"{len(names):,} of {len(test.questions):,} questions {'is' if len(names) == 1 else 'are'}"


def _compute_score(test: "HiddenQuestions", key: "HiddenKey", answers: pd.DataFrame) -> tuple[float, int]:
    """Score the answers.

    Returns:
        The metric over all questions that it covers (percent, rounded), and their number. A
            response that chooses no option scores 0.
    """
    keyed = test.questions.copy()
    key_choices = [key.answers.get(str(name), []) for name in keyed["question_id"]]
    keyed["answer"] = pd.Series(key_choices, index=keyed.index, dtype=object)
    try:
        metric_units = compute_units(HIDDEN_FORMAT, keyed, answers)
        metric_units = metric_units[metric_units["metric"] == key.metric]
        denominator = float(metric_units["denominator"].sum())
        value = 100 * float(metric_units["numerator"].sum()) / denominator if denominator else 0.0
    except Exception as error:  # its message is not shown, as it may contain a part of the key
        log.error("hidden test: scoring failed with %s", type(error).__name__)
        raise BadInput("hidden test: scoring failed; nothing was counted. Tell the board's owner.") from None

    return round(value, SCORE_DECIMALS), len(metric_units)


def _file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _choices_digest(answers: pd.DataFrame) -> str:
    """Return the digest of the choices, whatever the wording and order of the responses."""
    rows = sorted(
        (str(name), sorted(int(index) for index in choice))
        for name, choice in zip(answers["question_id"], answers["choice"], strict=True)
    )
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


USER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}", re.ASCII)
"""User names that are accepted, which include all of the Hub's.

A user name becomes a file name, so it contains no slash and does not start with a dot.
"""


def normalize_user(user: str) -> str:
    """Return the name of a user as it appears in the ledger.

    Raises:
        BadInput: If the name is empty or not a valid user name.
    """
    if not isinstance(user, str) or not user.strip():
        raise BadInput("not signed in: sign in with your Hugging Face account, then ask again.")
    if not USER_NAME.fullmatch(user):
        raise BadInput(f"user {clip(user)}: not a Hugging Face user name. Sign in again.")
    return user.lower()  # user names of the Hub are case-insensitive


def ledger_path(user: str) -> str:
    """Return the path of a user's document in the ledger."""
    return f"users/{user}.json"


def past_scorings(document: Document | None) -> list[Document]:
    """Return the scorings of a user, oldest first.

    Raises:
        BadInput: If the document is damaged. Treating it as empty would reset the user's limit.
    """
    if document is None:
        return []
    scorings = document.get("scorings")
    required_fields = {"day", "sha256", "choices", "test", "score", "questions"}
    if not isinstance(scorings, list) or not all(
        isinstance(scoring, dict) and required_fields <= scoring.keys() for scoring in scorings
    ):
        raise BadInput("hidden test: the ledger of this user is damaged. Tell the board's owner; nothing was counted.")

    return list(scorings)


def _is_same_scoring(past: Document, scoring: Document) -> bool:
    """Return True if a past scoring was of the same file or choices, with the same test and key."""
    same_file = past["sha256"] == scoring["sha256"] or past["choices"] == scoring["choices"]
    return same_file and past["test"] == scoring["test"]


def today() -> str:
    """Return the date in UTC."""
    return datetime.now(UTC).date().isoformat()


@dataclass(frozen=True)
class HiddenQuestions:
    """The public side of the test: every question that a file must answer, without answers."""

    name: str
    questions: pd.DataFrame
    fingerprint: str


@dataclass(frozen=True)
class HiddenKey:
    """The private side of the test: the key.

    `version` identifies the key without revealing anything about it.
    """

    answers: Mapping[str, list[int]]
    metric: str
    version: str


def open_test(folder: str) -> HiddenQuestions:
    """Open the public side of a test (a folder, or ORG/NAME on the Hub).

    Raises:
        BadInput: If the dataset has no split with hidden answers.
    """
    repository = open_repository(folder)
    if repository.family != HIDDEN_FORMAT or HIDDEN_SPLIT not in repository.splits:
        raise BadInput(f"{folder}: has no split {HIDDEN_SPLIT} of {HIDDEN_FORMAT}, the only test with hidden answers.")
    questions = repository.questions(HIDDEN_SPLIT)
    # Drop any answers in the public rows: code that reads untrusted files must not have them.
    questions["answer"] = pd.Series([[] for _ in range(len(questions))], index=questions.index, dtype=object)
    return HiddenQuestions(repository.name, questions, fingerprint_questions(questions))


def load_key(source: str, test: HiddenQuestions, token: str | None, metric: str | None) -> HiddenKey:
    """Load the private answers. Error messages never quote them.

    Args:
        source: A folder, or a private dataset repository ORG/NAME.
        test: The public questions.
        token: Hub token; None uses this machine's.
        metric: The metric to score; None chooses it by the types of the questions.

    Raises:
        BadInput: If the repository is public, or the answers do not fit the questions.
    """
    if is_hub_store(source):
        api = connect_with_token(token)
        with (
            temporary_folder(Path(tempfile.gettempdir()), "medprobe-key-") as folder,
            hide_progress_bars(),
            hub_errors(source, "read the answers"),
        ):
            head = with_retries(lambda: require_private_head(api, source, "the answers of a test"))
            names = ["manifest.json", "answers/*.parquet"]
            # Download to a temporary folder: the key must not stay in the cache of a public board.
            with_retries(
                lambda: api.snapshot_download(
                    source,
                    repo_type="dataset",
                    revision=head,
                    allow_patterns=names,
                    local_dir=folder,
                )
            )
            return _parse_key(folder, source, head, test, metric)

    files = sorted(Path(source).glob("answers/*.parquet"))
    # A digest of the content would reveal something about the key; file times do not.
    version = ",".join(str(file.stat().st_mtime_ns) for file in files)
    return _parse_key(Path(source), source, version, test, metric)


def _parse_key(folder: Path, source: str, version: str, test: HiddenQuestions, metric: str | None) -> HiddenKey:
    """Read the answers in a folder, and check them against the public questions."""

    def invalid_key(problem: str) -> BadInput:
        return BadInput(f"{source}: {problem}. Rebuild the dataset and its answers.")

    rows: list[tuple[str, list[int]]] = []
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        if manifest["schema_version"] != DATASET_SCHEMA_VERSION:
            raise ValueError("another version")
        name = manifest["answers_of"]
        for file in sorted(folder.glob("answers/*.parquet")):
            # The file is trusted, so it need not be read in the sandbox.
            frame = pd.read_parquet(file, columns=["question_id", "answer"])
            rows += [
                (str(question), [int(index) for index in positions])
                for question, positions in zip(frame["question_id"], frame["answer"], strict=True)
            ]
    except Exception as error:  # again, its message is not shown
        log.error("hidden test: the answers cannot be read (%s)", type(error).__name__)
        raise invalid_key("not a folder of hidden answers (manifest.json, answers/*.parquet)") from None

    answers = dict(rows)
    public: dict[str, Any] = {str(row.question_id): row for row in test.questions.itertuples(index=False)}
    if name != test.name:
        raise invalid_key(f"contains the answers of {clip(name)}, but the questions are of {test.name}")
    if not answers or len(answers) < len(rows) or not answers.keys() <= public.keys():
        raise invalid_key("its answers are not those of the test's questions")

    for question, positions in answers.items():
        row = public[question]
        is_multiple = row.question_type == "multiple"
        if (
            not positions
            or not set(positions) <= set(range(len(row.options)))
            or (len(positions) > 1 and not is_multiple)
        ):
            raise invalid_key("contains an answer that is not an option of its question")

    types = {public[question].question_type for question in answers}
    metric = metric or ("accuracy" if "single" in types else "mcq_accuracy")
    if HIDDEN_METRICS[metric] not in types:
        raise BadInput(
            f"hidden test: {source} contains no answer to a question of type {HIDDEN_METRICS[metric]} ({metric})."
        )

    return HiddenKey(answers, metric, version)
