"""What a person should look at before a result is added: nothing here refuses one, and nothing here proves one.

See also: its dataset (`examine.py`), names and answers like those of another result (`names.py`, `likeness.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

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


def doubts(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Flags for a result of `readings` of answers to `questions`."""
    return [*_remarkable(questions, readings), *_odd_answers(result, readings), *_odd_method(result)]


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
    """(Nearly) right throughout, in all samples or in any one of them; right wherever it chose; in the order of the key."""
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    table = pd.DataFrame(
        {
            "sample": readings["sample"].astype(int).to_numpy(),
            "given": readings["choice"].map(_tuple).to_numpy(),
            "wanted": [key[name] for name in readings["question_id"].astype(str)],
        }
    )
    table = table[table["wanted"].map(len) > 0]
    table = table.assign(right=table["given"] == table["wanted"], chose=table["given"].map(len) > 0)
    if table.empty:
        return
    by_sample = table.groupby("sample")["right"].agg(["sum", "size"])
    best = by_sample.iloc[int((by_sample["sum"] / by_sample["size"]).to_numpy().argmax())]
    for what, right, of in (
        ("", int(table["right"].sum()), len(table)),
        (" of one sample", int(best["sum"]), int(best["size"])),
    ):
        asked = of // len(by_sample) if not what else of
        if right == of and asked >= FEW:
            yield f"a perfect score: all {right:,} answers{what} are right"
            break
        if asked >= ENOUGH and right >= REMARKABLE * of:
            yield f"a remarkable score: {right:,} of {of:,} answers{what} are right, more than of any model in the papers"
            break
    chose = table[table["chose"]]
    if ENOUGH <= len(chose) < len(table) and chose["right"].sum() >= 0.99 * len(chose):
        yield (
            f"{int(chose['right'].sum()):,} of the {len(chose):,} answers that chose an option are right, and the other "
            f"{len(table) - len(chose):,} chose none: wrong answers may have been taken out"
        )
    for _, rows in table.groupby("sample"):
        if shifted := _in_the_order_of_the_key(list(zip(rows["given"], rows["wanted"], strict=True))):
            yield f"the answers follow the order of the key, {shifted}"
            break


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
