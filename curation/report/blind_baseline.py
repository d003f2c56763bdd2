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

from curation.writing.asking import Asking, Writer, ask_once
from eval_harness.benchmarks import spec
from eval_harness.derive.answers import read_answers
from eval_harness.derive.scoring import score
from eval_harness.prompts import prompt_for


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


def replies_without_images(
    family: str, questions: pd.DataFrame, model: Writer, journal: Path, asking: Asking
) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """Put every question (rows as `questions_text` has them) to `model` without its image: the answers as the reader takes them, and the
    journal's entries.

    Replies go to `journal` as they come; asking the same model the same questions again costs nothing, failed ones are asked anew.
    """
    by_kind = {kind: prompt_for(family, None, str(kind), "mc") for kind in questions["question_type"].unique()}
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
    system = spec(family).system if getattr(model, "is_api", False) else None  # as in the harness
    texts = {key: json.loads(key)[-1] for key in prompts}
    replies = list(ask_once(model, texts, asking, journal, "asking without images", system).values())
    answers = pd.DataFrame(
        {
            "question_id": [prompts[entry["id"]] for entry in replies],
            "sample": 0,
            "response": [entry["reply"] for entry in replies],
            "status": [entry["status"] for entry in replies],
        }
    )
    return answers, replies


def ask_blind(family: str, questions: pd.DataFrame, model: Writer, journal: Path, asking: Asking) -> BlindModel:
    """A model's scores on questions that are put to it without their images (`replies_without_images`)."""
    answers, replies = replies_without_images(family, questions, model, journal, asking)
    scored = score(family, questions, read_answers(answers, questions, family))
    tokens = [sum(entry["tokens"][side] for entry in replies if entry["tokens"]) for side in (0, 1)]
    cost = None
    if asking.price:
        cost = round((tokens[0] * asking.price[0] + tokens[1] * asking.price[1]) / 1e6, 4)
    return BlindModel(
        model.name,
        ", ".join(sorted({prompt_for(family, None, str(kind), "mc").name for kind in questions["question_type"]})),
        asking.temperature,
        {name: found.model_dump() for name, found in scored.scores.items()},
        scored.statuses,
        tokens[0],
        tokens[1],
        cost,
    )
