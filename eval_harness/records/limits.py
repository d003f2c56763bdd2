"""The names, texts, sizes and records of runs that stores accept; printing of untrusted text.

The limits on sizes depend on the numbers of questions and samples alone. They are therefore known
before a run begins (`eval` reports them) and before anything is decompressed (a store enforces
them). `run_problems` yields why stores refuse a record; it is asked before the first question of
`eval`, and when a store examines a submission.
"""

import json
import re
import shlex
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

from dataset_builders.errors import BadInput, clip
from eval_harness.records.result import EXTRACTIONS, METHOD_NAMES, RunRecord

# --- names and texts ---


def model_slug(name: str) -> str:
    """Return a folder name for a model's display name: ASCII letters, digits, `.`, `_`, `-`.

    >>> model_slug("org/Model 7B (v1.6)")
    'org-Model-7B-v1.6'
    """
    # NFKD separates letters from their accents, which the ASCII encoding then drops.
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", ascii_name).strip("-.")[:80].rstrip("-.") or "model"
    return f"model-{slug}" if WINDOWS_DEVICES.fullmatch(slug) else slug


WINDOWS_DEVICES = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
"""Names that a folder cannot have on Windows."""

FOLDER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,150}")
"""Valid names of benchmarks and results, which become folders of a store."""

MAX_NAME_LENGTH = 200
"""Maximum length of a display name, in characters."""

JOINERS = "\u200c\u200d\u180b-\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
"""Joiners and variation selectors: needed by some scripts and emoji, invisible anywhere else."""

_UNFIT = re.compile(
    "[<>\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f]"  # markup, invisible characters and look-alike spaces
    "|[\u2460-\u24ff\u2776-\u2793\u3200-\u32ff\U0001f100-\U0001f1ff\u20dd-\u20e4]"  # enclosed letters and digits
    "|[\U0001d400-\U0001d7ff]"  # mathematical letters and digits, which imitate ordinary ones
    rf"|(?:^|[\x00-\u058f])[{JOINERS}]"  # a joiner in Latin, Greek or Cyrillic
)

EAST_ASIAN_SCRIPTS = frozenset(
    {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
)
"""Scripts that are written next to each other, and next to Latin, without a space.

Each is the first word of the Unicode names of its letters.
"""


def normalize_name(name: str) -> str:
    r"""Normalize a display name to composed characters (Unicode NFC) and single inner spaces.

    >>> normalize_name("  Me\u0301dical\u00a0VLM ")
    'M\u00e9dical VLM'
    """
    return " ".join(unicodedata.normalize("NFC", name).split())


def model_name_problem(name: str) -> str | None:
    """Return what is wrong with a display name, or None if it is valid.

    A valid name is normalized, visible text with one script per word. Quotes, `=`, `%`, `&` and
    letters of any script are valid: code that prints a name must escape it.
    """
    quoted_name = clip(name)
    if not name or name != normalize_name(name):
        return (
            f"model name {quoted_name}: must be non-empty, in composed characters (NFC) and with "
            "single spaces. Give --name."
        )
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"model name {quoted_name}: has {len(name)} characters, at most {MAX_NAME_LENGTH}. Give a shorter --name."
        )
    # Joiners are not printable by Python's definition, but valid after most characters.
    visible = re.sub(f"[{JOINERS}]", "", name)
    # Invisible or look-alike characters could imitate another model's name.
    bad_sign = _UNFIT.search(name) or next((sign for sign in visible if not sign.isprintable()), None)
    if bad_sign:
        sign = ascii(bad_sign if isinstance(bad_sign, str) else bad_sign[0][-1])
        return f"model name {quoted_name}: contains {sign}. Markup, enclosed and invisible characters are not allowed; give another --name."
    # Mixed scripts in a word ("GPT" with a Cyrillic letter) imitate another name.
    mixed_word = next(
        (word for word in re.findall(r"\w+", unicodedata.normalize("NFKC", visible)) if len(_scripts(word)) > 1), None
    )
    if mixed_word:
        scripts = " and ".join(sorted(script.capitalize() for script in _scripts(mixed_word)))
        return f"model name {quoted_name}: {mixed_word!a} mixes {scripts} letters in one word. Give another --name."
    return None


def _scripts(word: str) -> set[str]:
    """Return the scripts of a word's letters, except EAST_ASIAN_SCRIPTS."""
    scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word if letter.isalpha()}
    return scripts - EAST_ASIAN_SCRIPTS - {"MODIFIER"}


MAX_TEXT_LENGTH = 2_000
"""Maximum length of a free field that describes a run, in characters."""

_SPACES = "\n\r\t\u00a0\u2000-\u200a\u202f\u205f\u3000"


def text_problem(text: str, is_data: bool = False) -> str | None:
    """Return what is wrong with a text from a submission; None if it can be displayed.

    Args:
        text: a free field of a run.json.
        is_data: True for a setting, command or prompt, which may have any length and line breaks.
    """
    visible = re.sub(f"[{JOINERS}{_SPACES if is_data else ''}]", "", text)
    bad_sign = next((sign for sign in visible if not sign.isprintable()), None)
    if bad_sign is not None:
        return f"contains {bad_sign!a}: give printable text{'' if is_data else ', in one line'}"
    return (
        None
        if is_data or len(text) <= MAX_TEXT_LENGTH
        else f"has {len(text):,} characters, at most {MAX_TEXT_LENGTH:,}"
    )


def single_line(text: str) -> str:
    """Make text safe for a terminal or a table row by replacing every unprintable character by "?".

    Line breaks are unprintable, too.
    """
    unprintable = {sign for sign in re.sub(f"[{JOINERS}]", "", text) if not sign.isprintable()}
    return text.translate({ord(sign): "?" for sign in unprintable})


def printable_line(text: str, max_length: int = 600) -> str:
    """Like `single_line`, with single spaces and at most `max_length` characters."""
    line = single_line(" ".join(text.split()))
    return line if len(line) <= max_length else line[: max_length - 4] + " ..."


# --- sizes ---

MAX_SAMPLES = 10_000
"""Maximum number of samples (or option orders) per question."""

MAX_ANSWERS = 400_000
"""Maximum number of answers of a run; this many can be read within LARGE_MEMORY_BYTES.

It allows 7 samples of ProbMed's 57,132 questions, or 1,136 of MediConfusion's 352.
"""

BYTES_PER_ANSWER = 16 << 10
"""Maximum average size of an answer, about 4,000 tokens of answer and reasoning.

A single answer may be longer.
"""

MIN_FILE_BYTES = 64 << 20
"""Size allowed for an answers file in addition to BYTES_PER_ANSWER for each answer."""

MAX_FILE_BYTES = 256 << 20
"""Maximum size of a submitted file.

The largest realistic one, ProbMed's 57,132 answers with a page of reasoning each, has about 120 MB.
"""

MAX_UNPACKED_BYTES = 1 << 30
"""Maximum uncompressed size of an answers file, however many answers it has."""

MAX_RUN_JSON_BYTES = 1 << 20
"""Maximum size of a run.json; ours have a few thousand bytes."""

MAX_FIELD_BYTES = 64 << 10
"""Maximum total size of the fields of a run.json."""

MAX_NUMBER = 1 << 64
"""Largest number in free fields: seeds have up to 64 bits, and many JSON parsers accept no more."""

MEMORY_BYTES, LARGE_MEMORY_BYTES = 384 << 20, 1536 << 20
"""Memory for reading a normal and a large submission, in addition to that of the libraries.

Only one large submission is read at a time, so that three concurrent readers fit in 2.5 GB.
"""

LARGE_ROWS, LARGE_FILE_BYTES = 10_000, 16 << 20
"""A submission with more answers, or more bytes in its files, is large."""


@dataclass(frozen=True)
class Limits:
    """Limits for reading the answers to a number of questions.

    They are several times what honest runs take: 1.5 s for GMAI-MMBench's 4,550 questions, 17 s for
    ProbMed's 57,132.

    Attributes:
        rows: Number of answers.
        file: Bytes of the answers file.
        unpacked: Bytes of its uncompressed content.
        cpu_seconds: Seconds of CPU time.
        memory: Bytes of memory, in addition to that of the libraries.
    """

    rows: int
    file: int
    unpacked: int
    cpu_seconds: int
    memory: int = MEMORY_BYTES

    @property
    def wall_seconds(self) -> int:
        """Seconds of wall-clock time."""
        # Waiting for the disk and for other processes takes time, but no CPU time.
        return 120 + 4 * self.cpu_seconds

    def __str__(self) -> str:
        return f"{self.memory >> 20:,} MB of memory and {self.cpu_seconds:,} s of computing"


def limits_for(questions: int, samples: int = 1, size: int = 0) -> Limits:
    """Return the limits for a submission.

    Args:
        questions: number of questions.
        samples: answers per question.
        size: total bytes of the files.

    Raises:
        BadInput: more samples or answers than a store accepts.
    """
    if not 1 <= samples <= MAX_SAMPLES:
        raise BadInput(f"--samples {samples:,}: must be between 1 and {MAX_SAMPLES:,}.")
    rows = questions * samples
    if rows > MAX_ANSWERS:
        raise BadInput(
            f"{questions:,} questions with {samples:,} samples each are {rows:,} answers: a store "
            f"accepts at most {MAX_ANSWERS:,}. "
            f"Use at most {max(1, MAX_ANSWERS // questions):,} samples, or fewer questions."
        )
    unpacked = min(MAX_UNPACKED_BYTES, MIN_FILE_BYTES + rows * BYTES_PER_ANSWER)
    # Generous (see `Limits`); the terms are for start-up, questions, answers and bytes.
    seconds = 20 + questions // 1_500 + rows // 1_000 + unpacked // (8 << 20)
    return Limits(rows, min(MAX_FILE_BYTES, unpacked), unpacked, seconds, _memory_for(rows, size))


def run_json_limits(size: int = 0) -> Limits:
    """Return the limits for reading run.json and its dataset, without the answers.

    Args:
        size: total bytes of the files, all of which the process holds in memory.
    """
    return Limits(
        rows=0, file=MAX_RUN_JSON_BYTES, unpacked=MAX_RUN_JSON_BYTES, cpu_seconds=30, memory=_memory_for(0, size)
    )


def _memory_for(rows: int, size: int) -> int:
    return LARGE_MEMORY_BYTES if rows > LARGE_ROWS or size > LARGE_FILE_BYTES else MEMORY_BYTES


def size_problems(run: Mapping[str, Any], max_bytes: int = MAX_FIELD_BYTES) -> Iterator[str]:
    """Yield the reasons why a store refuses a run.json of this size.

    Args:
        run: the parsed JSON.
        max_bytes: limit on all fields together.
    """
    # Measured as JSON text, so that nested and long fields count alike.
    sizes = {name: len(json.dumps(value)) for name, value in run.items()}
    if sum(sizes.values()) > max_bytes:
        largest = max(sizes, key=lambda name: sizes[name])
        yield (
            f"{sum(sizes.values()):,} characters apart from the answers, mostly in {largest}: a "
            f"store accepts at most {max_bytes:,} (our "
            "runs have a few thousand). Remove what readers do not need"
        )
    if any(abs(leaf) > MAX_NUMBER for _, leaf in json_leaves(run) if isinstance(leaf, (int, float))):
        yield "a number beyond 2^64 in run.json"


def json_leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) for every scalar and every key in parsed JSON.

    A key is yielded as a value, with the path of the object that contains it.
    """
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield path, name
            yield from json_leaves(inner, (*path, str(name)))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from json_leaves(inner, path)
    else:
        yield path, value


# --- records of runs that stores refuse ---

DATA_FIELDS = frozenset({"generation", "environment", "command"})
"""Fields that hold settings and measurements; all others hold names and sentences."""


def run_problems(run: RunRecord, most_bytes: int = MAX_FIELD_BYTES) -> Iterator[str]:
    """Yield every reason why a store refuses a run's description, regardless of its answers.

    Args:
        run: the record.
        most_bytes: limit on all fields together.
    """
    record = run.model_dump(mode="json")
    if problem := model_name_problem(run.model.name):
        yield problem
    if not FOLDER_NAME.fullmatch(run.benchmark.name):
        yield (
            f"benchmark name {clip(run.benchmark.name)}: must be letters, digits, dots and dashes, "
            "and start with a letter or digit"
        )
    # Every string, including the names of settings.
    for path, text in json_leaves(record):
        if isinstance(text, str) and (problem := text_problem(text, is_data=not DATA_FIELDS.isdisjoint(path))):
            yield f"{clip('.'.join(path))} {problem}"
    if problem := _time_problem(run.created_at):
        yield problem
    for is_wrong, problem in (*_method_checks(run), *_agreement_checks(run), *_model_checks(run)):
        if is_wrong:
            yield problem
    yield from size_problems(record, most_bytes)


_Problem = tuple[object, str]
"""Whether something is wrong with a record, and the message if it is."""


def _time_problem(created_at: str) -> str | None:
    try:
        created = datetime.fromisoformat(created_at)
    except ValueError:
        return f"created_at {clip(created_at)} is not a time (such as 2026-11-22T09:30:00+00:00)"
    # One day of tolerance: a time without a zone may be local time.
    if created.replace(tzinfo=created.tzinfo or UTC) > datetime.now(UTC) + timedelta(days=1):
        return f"created_at {clip(created_at)} is in the future: the machine's clock was wrong. Set it to the day of the run"
    return None


def _method_checks(run: RunRecord) -> list[_Problem]:
    method, judge, selection = run.method, run.method.judge or {}, run.benchmark.selection
    names = [judge.get(name) for name in ("prompt", "prompt_hash")]
    are_names = all(isinstance(name, str) and FOLDER_NAME.fullmatch(name) for name in names)
    judge_problem = model_name_problem(str(judge.get("model", "")))
    return [
        (method.name not in METHOD_NAMES, f"the method {clip(method.name)} is not one of {', '.join(METHOD_NAMES)}"),
        (
            method.extraction not in (None, *EXTRACTIONS),
            f"method.extraction {clip(method.extraction)}: must be {' or '.join(EXTRACTIONS)}",
        ),
        (
            method.judge is not None and not are_names,
            "method.judge must name the judge's model, prompt and prompt_hash",
        ),
        (method.judge is not None and judge_problem, f"method.judge: {judge_problem}"),
        (not 0 <= (method.shots or 0) <= MAX_ANSWERS, f"method.shots must be from 0 to {MAX_ANSWERS:,}"),
        (
            selection is not None and not selection.strip(),
            "benchmark.selection must describe what was asked, or be null for everything",
        ),
    ]


def _agreement_checks(run: RunRecord) -> list[_Problem]:
    """Compare the request, which decides what is asked, with the description that readers see."""
    request = run.request
    return [
        (
            requested != described,
            f"its request and its description differ: {field} {clip(requested)} and {clip(described)}",
        )
        for field, requested, described in (
            ("benchmark", request.benchmark, run.benchmark.name),
            ("split", request.split, run.benchmark.split),
            ("fingerprint", request.fingerprint, run.benchmark.fingerprint),
            ("method", request.method, run.method.name),
            ("samples", request.samples, run.method.samples or 1),
            ("image", request.image, run.method.image),
        )
    ]


def _model_checks(run: RunRecord) -> list[_Problem]:
    model, method = run.model, run.method
    # The recorded command counts as evidence, too, should the request have been edited.
    ran_baseline = run.request.model.startswith("baseline:") or _command_ran_a_baseline(run.command)
    is_model, is_person = model.responder == "model", model.kind == "human"
    is_sampled = (method.samples or 1) > 1 and not run.request.permute
    return [
        (
            model.parameters is not None and not 0 <= model.parameters < 1 << 53,
            "model.parameters must be a number of parameters, or null",
        ),
        (
            ran_baseline and is_model,
            f"responder {model.responder!r}: {clip(run.request.model)} is a baseline, which can only be added as one",
        ),
        (
            (model.kind == "baseline") == is_model,
            f"model kind {model.kind!r} and responder {model.responder!r}: 'baseline' means "
            "that no model answered (medprobe eval --model baseline:...)",
        ),
        (
            (is_person or not is_model) and (method.name != "mc" or method.judge is not None),
            "a baseline or a person chooses options directly: the method must be mc, without a judge",
        ),
        (
            is_person and (method.shots or is_sampled),
            "a person is shown no worked examples and answers each question once: omit --shots and --samples",
        ),
        (
            run.command is not None and not _is_quoted(run.command),
            f"the command {clip(run.command)} is not a shell-quoted medprobe command; set it to null",
        ),
    ]


def _is_quoted(command: str) -> bool:
    """Whether a command line runs medprobe and nothing else if it is pasted into a shell.

    All of its arguments must be quoted as `shlex.join` quotes them.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return False
    return words[:1] == ["medprobe"] and shlex.join(words) == command


def _command_ran_a_baseline(command: str | None) -> bool:
    """Whether a command line runs a baseline, judged by the value of --model.

    The word "baseline:" in a name or path does not count.
    """
    try:
        words = shlex.split(command or "")
    except ValueError:  # unbalanced quotes
        words = (command or "").split()
    pairs = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    return any(option == "--model" and value.startswith("baseline:") for option, value in pairs)
