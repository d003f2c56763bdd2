"""Flags for a person to look at before a result is added; none refuses a result, and none proves one.

See also: its dataset (`examine.py`), names and answers like those of another result (`names.py`, `likeness.py`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from operator import eq
from typing import Any

import pandas as pd
from scipy.stats import binom

from dataset_builders.errors import BadInput, clip
from dataset_builders.facets import select_by_facets
from dataset_builders.lexical_tree import select
from eval_harness.prompts import PROMPTS
from eval_harness.reader.judge import prompt_of
from eval_harness.records.result import Result

REMARKABLE = 0.90
"""Share of right answers from which a result is looked at: no model in the papers of the four benchmarks comes near it."""
ENOUGH = 30
"""Questions from which on such a share, or a pattern in the answers, says something."""
FEW = 8
"""Questions from which on it is odd that all are right; with fewer it happens by guessing."""

LUCK = 1e-3
"""Probability under which the best of several samples is not better than the others by chance."""


def doubts(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Flags for a result of `readings` of answers to `questions`."""
    is_model = result.model.responder == "model"  # a baseline was reproduced
    remarkable = _remarkable(questions, readings) if is_model else ()
    return [*remarkable, *_odd_answers(result, readings), *_odd_method(result)]


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


def _remarkable(questions: pd.DataFrame, readings: pd.DataFrame) -> Iterator[str]:
    """(Nearly) right throughout; right wherever it chose; in the order of the key. Of all answers, of any one sample, and of those of its
    questions that have one right option, which a method may be able to answer alone. The first finding of each kind."""
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    table = pd.DataFrame(
        {
            "sample": readings["sample"].to_numpy(int),
            "given": readings["choice"].map(_tuple).to_numpy(),
            "wanted": [key[name] for name in readings["question_id"].astype(str)],
        }
    )
    wanted = table["wanted"].map(len)
    table = table.assign(right=table["given"] == table["wanted"], chose=table["given"].map(len) > 0, single=wanted == 1)
    table = table[wanted > 0]
    found: dict[str, str] = {}
    for sample, rows in [(None, table), *table.groupby("sample")]:
        what = "" if sample is None else " of one sample"
        for part in (rows, rows[rows["single"]]):
            right, chosen, asked = int(part["right"].sum()), int(part["chose"].sum()), len(part)
            if asked and right >= REMARKABLE * asked and _is_odd(table, sample, asked, right):
                word = "perfect" if right == asked else "remarkable"
                told = f"{right:,} of {asked:,} answers{what} are right, more than of any model in the papers"
                found.setdefault("score", f"a {word} score: {told}")
            if ENOUGH <= chosen < asked and right >= 0.99 * chosen:
                others = f"the other {asked - chosen:,} chose none: wrong answers may have been taken out"
                told = f"{right:,} of the {chosen:,} answers{what} that chose an option are right, and {others}"
                found.setdefault("silence", told)
        if sample is not None and (order := _order_of_the_key(rows["given"].tolist(), rows["wanted"].tolist())):
            found.setdefault("order", f"the answers follow the order of the key, {order}")
    yield from found.values()


def _odd_method(result: Result) -> Iterator[str]:
    """A method that does not go with the prompts of the benchmark, or a judge that was asked something else."""
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
    judge = result.method.judge
    if judge is not None and any(judge.get(name) != value for name, value in prompt_of(method).items()):
        yield f"the judge was asked with another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"


def _prompts(family: str, said: str) -> list[str]:
    """The names in what a result calls its prompts, joined by a plus, which a name may hold itself: the longest known ones first."""
    parts = said.split("+") if said else []
    found = []
    while parts:
        count = next((n for n in range(len(parts), 0, -1) if (family, "+".join(parts[:n])) in PROMPTS), 1)
        found.append("+".join(parts[:count]))
        parts = parts[count:]
    return found


def _odd_answers(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """Columns of the answers that no reading can check, where they do not go together."""
    said = readings["response"].fillna("").str.strip() != ""
    beside = int((said & (readings["delivery"] != "answered")).sum())
    if beside:
        yield f"{beside:,} answers marked as withheld or missing contain text"
    lacking = int(((readings["delivery"] == "answered") & readings["scores"].isna()).sum())
    if lacking and result.method.name in ("gd", "ps", "ps_official"):
        yield f"the method {result.method.name} chooses by option scores, and {lacking:,} answers have none"


def _is_odd(table: pd.DataFrame, sample: int | None, asked: int, right: int) -> bool:
    """True if so many right answers are no luck: of all answers, whether there are enough; of one sample of several, whether the best of
    so many that are right as often as the others would be as good."""
    samples = table["sample"].nunique()
    if sample is None or samples == 1:
        return asked // samples >= (FEW if right == asked else ENOUGH)
    others = float(table.loc[table["sample"] != sample, "right"].mean())
    return bool(samples * binom.sf(right - 1, asked, max(others, 1 / asked)) < LUCK)


def _order_of_the_key(given: list[tuple[int, ...]], wanted: list[tuple[int, ...]]) -> str | None:
    """True if the answers are the key itself, moved by a few rows or turned round: copied, and misaligned."""
    if len(wanted) < ENOUGH or Counter(wanted).most_common(1)[0][1] > 0.9 * len(wanted):
        return None  # nearly always the same letter: any constant answer would fit
    orders = {step: [*wanted[step:], *wanted[:step]] for step in (1, -1, 2, -2)} | {0: wanted[::-1]}
    for step, order in orders.items():
        if sum(map(eq, given, order)) >= 0.95 * len(wanted) and sum(map(eq, order, wanted)) < 0.9 * len(wanted):
            return f"moved by {abs(step)}" if step else "turned round"
    return None


def _tuple(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))
