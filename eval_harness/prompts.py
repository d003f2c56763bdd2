"""Choose the template of a question. The templates are protocol constants of the benchmarks (`benchmarks/*.py`).

See also: how a model's own chat template wraps the text (`models/local/transformers_vlm.py`), reading a response (`derive/reading.py`).
"""

from __future__ import annotations

from dataset_builders.benchmarks import BENCHMARKS
from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.prompt import Prompt

PROMPTS: dict[tuple[str, str], Prompt] = {
    (name, prompt.name): prompt for name in BENCHMARKS for prompt in eval_spec(name).prompts
}
"""Every template by (benchmark, name)."""

DEFAULT_PROMPT: dict[str, str] = {name: eval_spec(name).default_prompts["mc"] for name in BENCHMARKS}
"""Benchmark -> its template for the method `mc`."""


def get_prompt(family: str, name: str | None, question_type: str, method: str = "mc") -> Prompt:
    """The template for one question.

    `name` None means the benchmark's default for the method; GMAI-MMBench's default follows the question type (`single` / `multiple`).
    Raises BadInput for a name this benchmark does not have, or one that is not for this method, with the names there are.
    """
    if name is None:
        name = _default(family, question_type, method)
    prompt = PROMPTS.get((family, name))
    known = ", ".join(each.name for each in eval_spec(family).prompts if method in each.methods)
    if prompt is None:
        raise BadInput(f"--prompt {name}: {family} has no prompt of that name. For --method {method} it has: {known}.")
    if method not in prompt.methods:
        raise BadInput(f"--prompt {name}: is not for --method {method}. For that {family} has: {known}.")
    return prompt


def _default(family: str, question_type: str, method: str) -> str:
    """The benchmark's template for the method; for `mc`, and methods it has none for, that of the question type, else that of `mc`."""
    defaults = eval_spec(family).default_prompts
    return defaults.get(method if method != "mc" else question_type) or defaults.get(question_type) or defaults["mc"]
