"""What a human should look at before a result lands: nothing here refuses one, and nothing here proves one.

See also: what is wrong with a submission (`validation.py`), its dataset (`examination.py`), names (`names.py`), answers like those of
another result (`likeness.py`).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.facets import select_by_facets
from dataset_builders.lexical_tree import select
from dataset_builders.sources.problems import clip
from eval_harness.answers import read_answers
from eval_harness.prompts import PROMPTS
from eval_harness.records.result import DELIVERIES, Result
from eval_harness.results.spreadsheets import is_formula
from eval_harness.submissions.checks.names import look_alike, odd_name

REMARKABLE = 0.90
"""Share of right answers from which a result is looked at: no model in the papers of the four benchmarks comes near it."""
ENOUGH = 30
"""Questions from which on such a share, or a pattern in the answers, says something."""
DISPUTED = 0.01
"""Share of answers on which the paper's reader and ours may differ without a word."""
FASTEST, SLOWEST = 1e-4, 7 * 24 * 3600.0
"""Seconds of an answer beyond which nobody believes it."""
MOST_CHARACTERS = 16
"""Of a token of text, on average: the longest words of English have one token for some 15."""
KNOWN_SETTINGS = {"temperature": (0, 10), "top_p": (0, 1), "max_tokens": (1, 10_000_000)}
"""Setting of `method.generation` -> the numbers it can have."""
MOST_SHOTS = 100
FIRST_DAY = datetime(2024, 1, 1, tzinfo=UTC)
"""The papers of the benchmarks are of May 2024 and later."""
LETTER = r"\W*[A-Ja-j]\W*"
CUT_OFF = ("length", "max_tokens", "max_output_tokens", "MAX_TOKENS")
"""What servers call an answer that the output limit ended."""
MOST_DEVIATIONS = 30
LONGEST_REASON = 100
"""Characters of what a server says of why an answer ended, mostly one word."""
LONGEST_TEXT = 1_000
"""Characters of a text that goes with a result; the longest of our own, a list of branches, has some hundred."""


def doubts(result: Result, questions: pd.DataFrame, answers: pd.DataFrame) -> list[str]:
    """Flags for a result whose `answers` (as scored) were given to `questions`.

    Answers that are alike to those of another result: `likeness.py`.
    """
    found = [*_remarkable(result, questions, answers), *look_alike(result.model.name), *odd_name(result.model)]
    found += [*odd_texts(result), *_odd_claims(result), *_odd_times(result)]
    found += [*_odd_answers(result, answers), *_odd_method(result, answers)]
    if len(result.deviations) > MOST_DEVIATIONS:
        found.append(f"names {len(result.deviations):,} deviations")
    if result.method.extraction == "official":
        found += _disputed(result, questions, answers)
    return found


def odd_selection(
    selection: str | None, questions: pd.DataFrame, split: pd.DataFrame, partial: str | None = None
) -> list[str]:
    """Flags for a part of a `split` that is not what its words (`selection`) say: chosen by hand, or with parts of cases. `partial`: what
    the dataset says that it lacks.

    `eval` asks the first N questions with the rest of their cases, branches of the lexical tree, and facets; nothing else.
    """
    if selection is None or (selection == partial and len(questions) == len(split)):
        return []
    sizes = split.groupby("case_id").size()
    counts = questions.groupby("case_id").size()
    halves = int((counts < sizes.reindex(counts.index)).sum())
    found = [f"{halves:,} of its {len(counts):,} cases were asked in part"] if halves else []
    branches = re.search(r"only the branch (.+?)(?:; only the f(?:irst|acets) |$)", selection)
    facets = re.search(r"only the facets (.+?)(?:; only the first|$)", selection)
    first = re.search(r"only the first (\d{1,9}) questions", selection)
    expected = split
    if branches:
        try:
            expected = expected[select(expected, branches[1].split(" + "))]
        except BadInput:
            return [*found, f"the dataset has no branch {clip(branches[1])}, which it says that it asked"]
    if facets:
        try:
            expected = expected[select_by_facets(expected, facets[1].split(" + "))]
        except BadInput:
            return [
                *found,
                f"the dataset has no questions of the facets {clip(facets[1])}, which it says that it asked",
            ]
    if first:
        expected = expected[expected["case_id"].isin(expected["case_id"].iloc[: int(first[1])])]
    if (branches or facets or first) and set(expected["question_id"]) != set(questions["question_id"]):
        found.append(f"its questions are not {clip(selection, 200)}: they may have been picked by hand")
    if not branches and not facets and not first and not halves:
        found.append(f"its questions are a choice of its own ({clip(selection, 200)})")
    return found


def odd_texts(result: Result) -> Iterator[str]:
    """What a submitter wrote that is long, holds invisible characters, or would be a formula in a spreadsheet."""
    for field, text in _texts(result.model_dump(exclude={"scores", "breakdown", "statuses"})):
        long = LONGEST_TEXT * (20 if field in ("command", "method.generation.system") else 1)
        if len(text) > long:
            yield f"{field} has {len(text):,} characters"
        elif not re.sub(r"[\n\t\u200c\u200d\ufe0f]", " ", text).isprintable():  # what joins letters is part of writing
            yield f"{field} holds invisible characters ({clip(ascii(text))})"
        elif is_formula(text):
            yield f"{field} begins like a formula of a spreadsheet ({clip(ascii(text))})"


def _texts(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """(where it stands, text) of every text in a document, its keys among them."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not re.fullmatch(r"[\w. :/+()-]{1,100}", str(key)):
                yield f"a key of {field or 'the result'}", str(key)
            name = f"{field}.{str(key)[:40]}".strip(".")
            yield from _texts(inner, name)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner, field)


def _remarkable(result: Result, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
    """(Nearly) right throughout, in the order of the key, or in no time."""
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    first = answers[answers["sample"] == 0]
    wanted = [key[name] for name in first["question_id"].astype(str)]
    known = [(given, right) for given, right in zip(first["choice"].map(_tuple), wanted, strict=True) if right]
    right = sum(given == wanted for given, wanted in known)
    if known and right == len(known):
        yield f"a perfect score: all {right:,} answers are right"
    elif len(known) >= ENOUGH and right >= 0.99 * len(known):
        yield f"a nearly perfect score: {right:,} of {len(known):,} answers are right"
    elif len(known) >= ENOUGH and right >= REMARKABLE * len(known):
        yield f"a remarkable score: {right:,} of {len(known):,} answers are right, more than of any model in the papers"
    chose = [(given, wanted) for given, wanted in known if given]
    of_these = sum(given == wanted for given, wanted in chose)
    if len(chose) >= ENOUGH and len(chose) < len(known) and of_these >= 0.99 * len(chose):
        yield (
            f"{of_these:,} of the {len(chose):,} answers that chose an option are right, and the other "
            f"{len(known) - len(chose):,} chose none: wrong answers may have been taken out"
        )
    if shifted := _in_the_order_of_the_key(known):
        yield f"the answers follow the order of the key, {shifted}"
    seconds = pd.to_numeric(answers["seconds"], errors="coerce").dropna()
    if len(seconds) and (seconds < FASTEST).all() and result.model.kind != "baseline":
        yield "all response times are zero"
    if (seconds > SLOWEST).any():
        yield f"an answer took {seconds.max():,.0f} seconds"


def _odd_method(result: Result, answers: pd.DataFrame) -> Iterator[str]:
    """A method that does not go with the prompts or the answers of a result."""
    family, method = result.benchmark.family, result.method.name
    prompts = _prompts(family, result.method.prompt or "")
    unknown = [name for name in prompts if (family, name) not in PROMPTS]
    if unknown:
        yield f"{family} has no prompt {clip(unknown[0])}"
    others = [name for name in prompts if name not in unknown and method not in PROMPTS[family, name].methods]
    if others:
        yield f"the prompt {others[0]} is none of the method {method}"
    if method != "mc" and not any(at == family and method in prompt.methods for (at, _), prompt in PROMPTS.items()):
        yield f"{family} has no prompt of the method {method}"
    if method == "ff" and len(answers):
        letters = int(answers["response"].fillna("").str.fullmatch(LETTER).sum())
        if letters > len(answers) / 2:
            yield f"{letters:,} of {len(answers):,} answers are a letter, and the method ff shows no letters"


def _odd_claims(result: Result) -> Iterator[str]:
    """Words for what only a store says, and settings that no model takes."""
    said = json.dumps([result.deviations, result.environment])
    if found := re.search(r"(?<![a-z])(verified|reproduced)(?![a-z])", said, re.IGNORECASE):
        yield f"its deviations or its environment say {found[0]!r}, which only a store can say of a result"
    for name, (least, most) in KNOWN_SETTINGS.items():
        value = result.method.generation.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most
        ):
            yield f"the setting {name} {clip(value)} is no number from {least} to {most:,}"
    if (result.method.shots or 0) > MOST_SHOTS:
        yield f"{result.method.shots:,} worked examples before each question"
    if result.command is not None and not result.command.startswith("medprobe "):
        yield f"the command {clip(result.command)} is none of medprobe's"
    if result.benchmark.revision is not None and not re.fullmatch(r"[0-9a-f]{40}", result.benchmark.revision):
        yield f"benchmark.revision {clip(result.benchmark.revision)} is no commit"


def _prompts(family: str, said: str) -> list[str]:
    """The names in what a result calls its prompts, joined by a plus, which a name may hold itself: the longest known ones first."""
    parts = said.split("+") if said else []
    found = []
    while parts:
        count = next((n for n in range(len(parts), 0, -1) if (family, "+".join(parts[:n])) in PROMPTS), 1)
        found.append("+".join(parts[:count]))
        parts = parts[count:]
    return found


def _odd_times(result: Result) -> Iterator[str]:
    """A day of the run on which none of these benchmarks was there."""
    with contextlib.suppress(ValueError):  # what is no time at all is told elsewhere
        made = datetime.fromisoformat(result.created_at)
        if made.replace(tzinfo=made.tzinfo or UTC) < FIRST_DAY:
            yield f"created_at {clip(result.created_at)}: none of the benchmarks had been published by then"


def _odd_answers(result: Result, answers: pd.DataFrame) -> Iterator[str]:
    """Columns of the answers that no reading can check, where they do not go together."""
    said = answers["response"].fillna("").str.strip() != ""
    beside = int((said & (answers["delivery"] != "answered")).sum())
    if beside:
        yield f"{beside:,} answers are said to be held back or missing, and there is a text"
    lacking = int(((answers["delivery"] == "answered") & answers["scores"].isna()).sum())
    if lacking and result.method.name in ("gd", "ps", "ps_official"):
        yield f"the method {result.method.name} chooses by option scores, and {lacking:,} answers have none"
    spent = pd.to_numeric(answers["tokens_out"])
    written = answers["response"].fillna("").str.count(r"\S")[spent.notna()].sum()
    if written > MOST_CHARACTERS * spent.sum():
        yield f"{written:,} characters are said to be {int(spent.sum()):,} tokens"
    longest = int(answers["finish_reason"].fillna("").str.len().max() or 0)
    if longest > LONGEST_REASON:
        yield f"a finish_reason has {longest:,} characters"
    room = result.method.generation.get("max_tokens")
    if isinstance(room, int) and not isinstance(room, bool) and result.method.name in ("mc", "ff"):
        whole = answers["finish_reason"].notna() & ~answers["finish_reason"].isin(CUT_OFF)
        used_up = int((whole & (spent >= room)).sum())
        if used_up > DISPUTED * len(answers):
            yield f"{used_up:,} answers took all {room:,} tokens there were, and are said to have ended by themselves"


def _disputed(result: Result, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
    """Answers that the paper's reader credits and ours does not, or that it reads as two answers at once."""
    several = set(questions.loc[questions["question_type"] == "multiple", "question_id"])
    two = sum(
        len(choice) > 1 and name not in several
        for name, choice in zip(answers["question_id"], answers["choice"], strict=True)
    )
    if two > DISPUTED * len(answers):
        yield f"{two:,} of {len(answers):,} answers read as two answers at once, and the paper's reader takes either for right"
    if "permuted" in result.environment:  # of each question, the first sample was shown in the dataset's order
        answers = answers[answers["sample"] == 0]
    said = answers.assign(status=answers["delivery"].map({word: status for status, word in DELIVERIES.items()}))
    ours = read_answers(said, questions, result.benchmark.family, "ours")
    differ = sum(list(one) != list(other) for one, other in zip(answers["choice"], ours["choice"], strict=True))
    if differ > DISPUTED * len(answers):
        yield f"{differ:,} of {len(answers):,} answers are read otherwise by our reader"


def _in_the_order_of_the_key(known: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> str | None:
    """Whether the answers are the key itself, shifted by a few rows or reversed: copied, and misaligned."""
    if len(known) < ENOUGH:
        return None
    names = {choice: number for number, choice in enumerate(dict.fromkeys(w for _, w in known))}
    given = np.array([names.get(g, -1) for g, _ in known])
    wanted = np.array([names[w] for _, w in known])
    if np.bincount(wanted).max() > 0.9 * len(wanted):
        return None  # nearly always the same letter: any constant answer would fit
    orders = {f"moved by {abs(step)}": np.roll(wanted, step) for step in (1, -1, 2, -2)} | {
        "turned round": wanted[::-1]
    }
    for name, order in orders.items():
        if (given == order).mean() >= 0.98 and (order == wanted).mean() < 0.9:
            return name
    return None


def _tuple(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))
