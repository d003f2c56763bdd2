"""Prompts and scores of the benchmarks: one module for each of `dataset_builders.benchmarks`.

See also: a model's own chat template (`models/local/model_inputs.py`), reading a response
(`derive/reading.py`).
"""

from dataset_builders.benchmarks import FORMATS
from dataset_builders.benchmarks.spec import load_spec
from dataset_builders.errors import BadInput
from eval_harness.benchmarks.spec import EvalSpec, Prompt


def eval_spec(name: str) -> EvalSpec:
    """Load the spec of a benchmark from its module. Raises KeyError for an unknown name."""
    if name not in FORMATS:
        raise KeyError(f"{name!r} is not a benchmark; there are {', '.join(FORMATS)}")
    return load_spec(__name__, name, EvalSpec)


def get_prompt(family: str, name: str | None, question_type: str, method: str = "mc") -> Prompt:
    """Return the template for a question.

    Args:
        family: The benchmark.
        name: None for the method's default; GMAI-MMBench's depends on the question type.
        question_type: "single", "multiple" or "yes_no".
        method: "mc", "gd", "ps", "ps_official" or "ff".

    Raises:
        BadInput: The benchmark has no such template, or not for this method; lists those it has.
    """
    spec = eval_spec(family)
    if name is None:
        # The method's default if it has one (`mc` has none), else the question type's, else mc's.
        defaults = spec.default_prompts
        of_method = defaults.get(method if method != "mc" else question_type)
        name = of_method or defaults.get(question_type) or defaults["mc"]
    prompt = next((template for template in spec.prompts if template.name == name), None)
    available = ", ".join(template.name for template in spec.prompts if method in template.methods)
    if prompt is None:
        raise BadInput(f"--prompt {name}: {family} has no such prompt. For --method {method} it has: {available}.")
    if method not in prompt.methods:
        raise BadInput(f"--prompt {name}: not available for --method {method}, for which {family} has: {available}.")
    return prompt
