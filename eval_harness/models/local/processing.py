"""A model's processor with what the harness reads from it: chat template, switch for reasoning, tokens of candidates and of answers.

Used with every engine that runs the network (`transformers_vlm.py`, `vllm_vlm.py`), so that all of them are asked the same tokens.
"""

from __future__ import annotations

import copy
import hashlib
from typing import Any

from dataset_builders.errors import BadInput, first_line
from eval_harness.models.interface import Settings
from eval_harness.models.local.model_inputs import InputMaker
from eval_harness.models.option_tokens import continuation, next_token_forms
from eval_harness.models.thinking import OutputReader, budget_tokens, opens_reasoning, template_switch
from eval_harness.records.request import Request


class Processing:
    """`inputs` makes prompts, `reader` reads new tokens. `plain`: whether prompts are sent as they stand, for want of a chat template.

    `opened`: whether the prompt has begun the model's reasoning. `budget`: most tokens of reasoning, with those that begin and end one;
    None without a budget.
    """

    def __init__(self, model_id: str, processor: Any, settings: Settings) -> None:
        """Raises BadInput where the template cannot do what the settings ask."""
        self.model_id = model_id
        if settings.chat_template:
            processor.chat_template = settings.chat_template
        self.plain = not getattr(processor, "chat_template", None)
        self.inputs = InputMaker(processor, settings, self.plain)
        template = "plain text" if self.plain else str(processor.chat_template)
        self.template_hash = hashlib.sha256(template.encode()).hexdigest()[:16]
        self.budget: tuple[int, int, int] | None = None
        end = self._switch_thinking(settings, template)
        self.opened = opens_reasoning(end)
        self._space = "" if end[-1:].isspace() else " "
        self._tokenizer = copy.deepcopy(processor.tokenizer)  # the other one is in use in the preparing thread
        self.reader = OutputReader(self._tokenizer, self.opened)

    def _switch_thinking(self, settings: Settings, template: str) -> str:
        """Set the template variables that `--thinking` asks for; returns what the template then writes after a question.

        Raises BadInput where the template cannot do what is asked, or cannot be rendered.
        """
        import jinja2

        variables, render = self.inputs.template_variables, self.inputs.rendered_end
        try:
            variables |= template_switch(render, variables, settings.thinking)
            end = render(variables)
        except jinja2.TemplateError as error:
            raise BadInput(
                f"--model {self.model_id}: its chat template cannot be used ({first_line(error)})."
            ) from None
        if isinstance(settings.thinking, int):
            self.budget = (settings.thinking, *budget_tokens(self.inputs.processor.tokenizer, template))
        return end

    def next_token_forms(self, request: Request) -> list[list[int]]:
        """The tokens that begin each candidate (`option_tokens.next_token_forms`)."""
        return next_token_forms(request, self._tokenize, self.model_id)

    def continuation(self, text: str) -> list[int]:
        """Token ids of an answer as the model would write it after its prompt (`option_tokens.continuation`)."""
        return continuation(text, self._tokenize, self._space)

    def _tokenize(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return ids


def output_limit(request: Request, own: int | None, settings: Settings) -> tuple[int, str | None]:
    """Tokens to generate, and what is said of it: what the command line says, else what the protocol asks, or the model's `own` limit
    where that is lower."""
    told = settings.max_tokens is not None or settings.thinking is not None
    if told or not own or own >= request.max_tokens:
        return request.max_tokens, None
    return int(own), (
        f"the model's generation config limits answers to {own} of the {request.max_tokens} output tokens allowed "
        "(--max-tokens lifts that)"
    )


def seed_of(request: Request) -> int:
    """A seed that depends on the question and the sample number alone."""
    text = f"{request.seed}\0{request.question_id}\0{request.sample}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")
