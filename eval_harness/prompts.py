"""Choose the prompt template of a question.

The templates are protocol constants of the benchmarks (`benchmarks/*.py`). See also: a model's own
chat template (`models/local/transformers_vlm.py`), reading a response (`derive/reading.py`).
"""

from __future__ import annotations

from dataset_builders.benchmarks import FORMATS
from dataset_builders.errors import BadInput
from eval_harness.benchmarks import eval_spec
from eval_harness.benchmarks.prompt import Prompt

PROMPTS: dict[tuple[str, str], Prompt] = {
    (name, prompt.name): prompt for name in FORMATS for prompt in eval_spec(name).prompts
}
"""(benchmark, name) -> template."""

DEFAULT_PROMPT: dict[str, str] = {name: eval_spec(name).default_prompts["mc"] for name in FORMATS}
"""Benchmark -> its template for the method `mc`."""


def get_prompt(family: str, name: str | None, question_type: str, method: str = "mc") -> Prompt:
    """Return the template for a question.

    Args:
        family: the benchmark.
        name: None for the method's default; GMAI-MMBench's depends on the question type.
        question_type: "single", "multiple" or "yes_no".
        method: "mc", "gd", "ps", "ps_official" or "ff".

    Raises:
        BadInput: the benchmark has no such template, or not for this method; lists those it has.
    """
    if name is None:
        name = _default(family, question_type, method)
    prompt = PROMPTS.get((family, name))
    available = ", ".join(each.name for each in eval_spec(family).prompts if method in each.methods)
    if prompt is None:
        raise BadInput(f"--prompt {name}: {family} has no such prompt. For --method {method} it has: {available}.")
    if method not in prompt.methods:
        raise BadInput(f"--prompt {name}: not available for --method {method}, for which {family} has: {available}.")
    return prompt


def _default(family: str, question_type: str, method: str) -> str:
    """Return the name of the default template.

    It is the method's default if there is one (`mc` has none), else the question type's, else the
    one registered under `mc`.
    """
    defaults = eval_spec(family).default_prompts
    return defaults.get(method if method != "mc" else question_type) or defaults.get(question_type) or defaults["mc"]
