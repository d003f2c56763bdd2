"""What a language model answers that never sees an image: the questions of a benchmark put to it as text alone, with the
harness's own prompt, reader and scores.

Both questions of MediConfusion's pairs read the same, so a model that always answers the same text alike gets no pair, half of the
questions and 100% confusion, and one that answers at random a quarter of the pairs: more of either means that something beside the
image gives answers away.

See also: rules that look at options only, and the report (`quality.py`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from curation.writing.question_writing import Asking, Writer, ask
from dataset_builders.journal import read_journal
from eval_harness.answers import read_answers
from eval_harness.benchmarks import spec
from eval_harness.prompts import prompt_for
from eval_harness.scores import score


@dataclass(frozen=True)
class BlindModel:
    """A model's scores without images: metric -> value, low, high (95%), n, n_cases, chance, verdict. `statuses`: how its responses
    ended; a question without an answer counts as wrong."""

    model: str
    prompt: str
    temperature: float
    scores: dict[str, dict[str, Any]]
    statuses: dict[str, int]
    tokens_in: int
    tokens_out: int
    cost: float | None


@dataclass(frozen=True)
class BlindAsking:
    """A language model to be asked without images, where its replies are kept, and how it is asked."""

    model: Writer
    journal: Path
    asking: Asking


def ask_blind(
    format: str, questions: pd.DataFrame, model: Writer, journal: Path, asking: Asking, quiet: bool | None = None
) -> BlindModel:
    """Put every question (rows as `questions_text` has them) to `model` without its image, and score the answers.

    Replies go to `journal` as they come; asking the same model the same questions again costs nothing, failed ones are asked anew.
    """
    by_kind = {kind: prompt_for(format, None, str(kind), "mc") for kind in questions["question_type"].unique()}
    prompts = {
        json.dumps(
            [
                model.name,
                asking.temperature,
                row["question_id"],
                by_kind[row["question_type"]].render(row["question"], row["options"]),
            ],
            ensure_ascii=False,
        ): row["question_id"]
        for row in questions.to_dict("records")
    }
    entries = {entry["id"]: entry for entry in read_journal(journal) if entry["status"] != "failed"}
    todo = {key: json.loads(key)[-1] for key in prompts if key not in entries}
    system = spec(format).system if getattr(model, "is_api", False) else None  # as in the harness
    journal.parent.mkdir(parents=True, exist_ok=True)
    for entry in ask(model, todo, 0, asking, journal, "asking without images", quiet, system):
        entries[entry["id"]] = entry
    replies = [entries[key] for key in prompts if key in entries]
    answers = pd.DataFrame(
        {
            "question_id": [prompts[entry["id"]] for entry in replies],
            "sample": 0,
            "response": [entry["reply"] for entry in replies],
            "status": [entry["status"] for entry in replies],
        }
    )
    scored = score(format, questions, read_answers(answers, questions, format))
    tokens = [sum(entry["tokens"][side] for entry in replies if entry["tokens"]) for side in (0, 1)]
    cost = None
    if asking.price:
        cost = round((tokens[0] * asking.price[0] + tokens[1] * asking.price[1]) / 1e6, 4)
    return BlindModel(
        model.name,
        ", ".join(sorted(prompt.name for prompt in by_kind.values())),
        asking.temperature,
        {name: found.model_dump() for name, found in scored.scores.items()},
        scored.statuses,
        tokens[0],
        tokens[1],
        cost,
    )
