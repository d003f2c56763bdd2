"""Reproduce what claims to be a guessing baseline or the oracle: our own, from its seed or from the key.

A baseline that is not reproduced would make every model look better or worse than guessing; it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.records.baselines import baseline
from eval_harness.records.permutations import rotation, shown
from eval_harness.records.request import Request
from eval_harness.records.result import DELIVERIES
from eval_harness.records.run import RunRecord
from eval_harness.store.names import OWN, skeleton

PREFIX = "baseline:"
SEED = 0
"""The one seed that `eval` gives a baseline: a run may not look for a lucky one."""


def not_reproduced(run: RunRecord, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
    """Why the answers of a run are not those of the baseline that it says it ran; nothing for a model's.

    `questions`: of the dataset, by whose key the oracle answers. `answers`: as `answer_table.answer_frame`.
    """
    if run.model.responder not in ("guessing", "oracle"):
        return
    name = run.request.model.removeprefix(PREFIX)
    if run.request.model == name or (name == "oracle") != (run.model.responder == "oracle"):
        yield f"says that {run.model.responder} answered, and its request asked {run.request.model[:100]!r}"
        return
    try:
        display, answered = baseline(name)
    except BadInput as error:
        yield str(error)
        return
    seen = skeleton(run.model.name)
    if called := next((own for own in OWN if own != display and skeleton(own) == seen), None):
        yield f"it is called {called}, and {run.request.model} answered: leave --name out"
    expected = {
        (each.question_id, each.sample): (each.text, DELIVERIES[each.status])
        for each in map(answered, _requests(run, questions))
    }
    columns = (answers[column] for column in ("question_id", "sample", "response", "delivery"))
    given = {
        (question, int(sample)): (text, delivery) for question, sample, text, delivery in zip(*columns, strict=True)
    }
    other = sum(given.get(key) != answer for key, answer in expected.items())
    if other:
        yield (
            f"{other:,} of {len(expected):,} answers are not those of {run.request.model}: only baselines of medprobe can be "
            "added as such"
        )


def _requests(run: RunRecord, questions: pd.DataFrame) -> Iterator[Request]:
    """What a baseline is asked: it looks at neither prompt nor image."""
    for row in questions.to_dict("records"):
        count = len(row["options"])
        for sample in range(run.request.samples):
            turned = rotation(sample, count) if run.request.permute else 0
            yield Request(
                question_id=str(row["question_id"]),
                sample=sample,
                prompt="",
                image=None,
                options=tuple(shown(list(row["options"]), turned)),
                question_type=str(row["question_type"]),
                answer=tuple((int(position) - turned) % count for position in row["answer"]),
                seed=SEED,
            )
