"""List the benchmarks' names outside their packages, which the command line need not load."""

from collections.abc import Iterable
from difflib import get_close_matches

from dataset_builders.errors import BadInput

BENCHMARKS: tuple[str, ...] = (
    "mediconfusion",
    "probmed",
    "gmai-mmbench",
    "halt-medvqa",
    "probmed-vqa-rad",
)
"""The official benchmarks. A custom set has its own name and one of `FORMATS`."""
ANY_SET = "vqa"
"""The format of any other set of visual questions."""
FORMATS: tuple[str, ...] = (*BENCHMARKS, ANY_SET)
"""The formats of datasets."""


def resolve_name(text: str, names: Iterable[str], label: str) -> str:
    """Return the candidate that a user means, ignoring case and `-`, `_` or spaces between words.

    Args:
        text: what the user typed.
        names: the candidates.
        label: start of the error message, such as "benchmark" or "--metric".

    Raises:
        BadInput: no candidate matches; lists near misses, or else all candidates.

    >>> resolve_name("GMAI_MMBench", BENCHMARKS, "benchmark")
    'gmai-mmbench'
    """
    candidates = list(dict.fromkeys(names))
    name_by_form = {fold_name(name): name for name in reversed(candidates)}

    # An exact match wins, since two candidates may differ only in case or separators.
    if text in candidates:
        return text
    if (form := fold_name(text)) in name_by_form:
        return name_by_form[form]
    suggestions = get_close_matches(form, name_by_form, n=3, cutoff=0.6)

    # Close matches compare whole names; substrings also catch abbreviations such as "gmai".
    suggestions += sorted(name for name in name_by_form if form and form in name and name not in suggestions)[:5]
    hint = f"Did you mean {' or '.join(name_by_form[name] for name in suggestions)}? " if suggestions else ""
    remainder = f" and {len(candidates) - 24} more" if len(candidates) > 24 else ""
    raise BadInput(
        f"{label} {text[:80]!r}: unknown. {hint}Available: {', '.join(candidates[:24]) or 'none'}{remainder}."
    )


def fold_name(name: str) -> str:
    """Return the form in which names are compared: lower case, words joined by hyphens."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())


def parse_benchmarks(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of benchmarks.

    Args:
        text: names in any case, or `all` for every official benchmark.

    Returns:
        Distinct names; official ones in their official spelling, others unchanged.

    Raises:
        BadInput: the list is empty.
    """
    official = {fold_name(name): name for name in FORMATS}
    selected = [official.get(fold_name(name), name) for part in text.split(",") if (name := part.strip())]
    if not selected:
        raise BadInput(f"benchmark {text!r}: name one, several with commas, or all. Official: {', '.join(BENCHMARKS)}.")
    return BENCHMARKS if [fold_name(name) for name in selected] == ["all"] else tuple(dict.fromkeys(selected))
