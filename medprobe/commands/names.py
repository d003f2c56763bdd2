"""List benchmarks, prompts and methods, from the benchmarks' own packages."""

from __future__ import annotations

METHODS = {
    "mc": "multiple choice: the answer is read from the text that the model writes",
    "gd": "the option whose letter is the likeliest first token of the answer (needs log-probabilities)",
    "ps": "the option whose whole text is the likeliest answer (needs log-probabilities)",
    "ps_official": "as ps, computed as the code of MediConfusion's authors does: every token at the first position",
    "ff": "free form: the options are not shown; MediConfusion's judge model says which one the answer means",
}


def benchmarks() -> list[dict[str, str]]:
    """A row per benchmark."""
    from dataset_builders.benchmarks import BENCHMARKS, spec
    from eval_harness.derive.metrics import HEADLINE

    return [
        {
            "benchmark": name,
            "title": spec(name).facts.title,
            "split": spec(name).default_split,
            "headline metric": HEADLINE[name],
            "facets": ", ".join(spec(name).facets),
        }
        for name in BENCHMARKS
    ]


def prompts() -> list[dict[str, str]]:
    """A row per prompt; `default`: the methods or types of question that it is the default of."""
    from eval_harness.benchmarks import spec
    from eval_harness.prompts import PROMPTS

    return [
        {
            "benchmark": family,
            "prompt": name,
            "methods": ", ".join(prompt.methods),
            "default": ", ".join(kind for kind, held in spec(family).default_prompts.items() if held == name),
            "source": prompt.source,
        }
        for (family, name), prompt in PROMPTS.items()
    ]


def methods() -> list[dict[str, str]]:
    """A row per method."""
    return [{"method": name, "what is read": words} for name, words in METHODS.items()]
