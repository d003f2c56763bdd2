"""Baselines as back ends: guessing, a constant letter, and the answer key itself.

Their scores put a model's score in context. See also: their rules (`records/baseline_rules.py`);
runs of a model without the image (`runs/images.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from eval_harness.models.interface import Backend
from eval_harness.records.baseline_rules import make_baseline
from eval_harness.records.request import Request, Response
from eval_harness.records.result import Model


class Baseline(Backend):
    """Answers by a rule that never looks at the image."""

    needs_images = False
    several_images = True
    one_token = True
    sees_prompts = False
    takes_stream = True
    options = ()

    def __init__(self, name: str, answer: Callable[[Request], Response]) -> None:
        self.model = Model(name=name, kind="baseline", responder="oracle" if name == "Oracle" else "guessing")
        self.deviations: list[str] = []
        self._answer = answer

    def generate(self, requests: Sequence[Request]) -> Iterator[Response]:
        yield from map(self._answer, requests)

    def describe(self) -> dict[str, Any]:
        return {}


def load_baseline(name: str) -> Baseline:
    """Load `chance`, `oracle`, or `always-<letter>`. Raises BadInput for any other name."""
    return Baseline(*make_baseline(name))
