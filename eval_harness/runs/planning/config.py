"""What the user asked for: the options of `medprobe eval`, with the checks that need neither dataset nor model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dataset_builders.errors import BadInput
from eval_harness.models.interface import Settings
from eval_harness.records.conversation import form_named
from eval_harness.records.fields import METHODS

SCORING_METHODS = ("gd", "ps", "ps_official")
"""The methods that compare likelihoods of the options instead of reading an answer."""

NOT_GENERATION = {
    "model",
    "messages",
    "stream",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "max_new_tokens",
    "logprobs",
    "top_logprobs",
}
"""What `--generation` may not set: it has an option of its own, or would change what an answer is."""


@dataclass(frozen=True)
class EvalConfig:
    """The options of `medprobe eval`. Raises BadInput where they make no sense by themselves."""

    benchmark: str
    model: str
    data: str | None = None
    split: str | None = None
    branches: Sequence[str] = ()
    facets: Sequence[str] = ()
    method: str = "mc"
    prompt: str | None = None
    shots: int = 0
    samples: int | None = None
    permute: bool = False
    form: str | None = None
    """Name of the conversation form (`forms.FORMS`); None: the default, or the one a resumed run was begun in."""
    system: str | None = None
    """System message instead of the form's; "" sends none."""
    max_tokens: int | None = None
    """Most output tokens of an answer, reasoning included, instead of the benchmark's."""
    cache: Path | None = None
    """Folder of replies kept across runs."""
    extraction: str = "ours"
    judge: str | None = None
    out: Path | None = None
    limit: int | None = None
    name: str | None = None
    resume: bool = True
    send_to_provider: bool = False
    """Whether a custom set may be sent to a model that is not on this machine."""
    settings: Settings = field(default_factory=Settings)
    argv: Sequence[str] = ()
    track: str | None = None
    """LIBRARY:PROJECT of a tracker (`runs/tracking.py`); it has no part in the request."""

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise BadInput(f"--method {self.method}: unknown. Available: {', '.join(METHODS)}.")
        if self.permute and self.samples:
            raise BadInput("--permute: takes one answer per option order, so it goes without --samples.")
        if self.permute and self.judge:
            raise BadInput("--judge: a judge reads the options as the question has them, so it goes without --permute.")
        if self.shots < 0:
            raise BadInput(f"--shots {self.shots}: must be 0 or more.")
        if self.samples is not None and self.samples < 1:
            raise BadInput(f"--samples {self.samples}: must be at least 1.")
        if self.scores_options and (self.samples or 1) > 1:
            raise BadInput(
                f"--samples {self.samples}: --method {self.method} draws nothing, so one sample is all there is."
            )
        if self.max_tokens is not None and self.max_tokens < 1:
            raise BadInput(f"--max-tokens {self.max_tokens}: must be at least 1.")
        if wrong := sorted(self.settings.generation.keys() & NOT_GENERATION):
            raise BadInput(
                f"--generation: {', '.join(wrong)} cannot be set there. Use --max-tokens and the other options."
            )
        form_named(self.form)

    @property
    def scores_options(self) -> bool:
        """Whether the method compares likelihoods of the options."""
        return self.method in SCORING_METHODS

    @property
    def model_settings(self) -> Settings:
        """The settings as the back end gets them."""
        return replace(self.settings, max_tokens=self.max_tokens, fixed_limit=self.max_tokens is not None)
