"""The list of benchmarks, separate from their packages, so that the command line can name them without loading any."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from dataset_builders.errors import BadInput

BENCHMARKS: tuple[str, ...] = ("mediconfusion", "probmed", "gmai-mmbench", "halt-medvqa", "probmed-vqa-rad")
"""The official benchmarks. A custom set has a name of its own and the family of one of these."""


def resolve_name(said: str, names: Iterable[str], what: str) -> str:
    """The one of `names` that is meant, in upper or lower case, with `-`, `_` or a space between words.

    `what`: how the error begins, such as "benchmark" or "--metric". Raises BadInput that lists near misses, else every name.

    >>> resolve_name("GMAI_MMBench", BENCHMARKS, "benchmark")
    'gmai-mmbench'
    """
    known: dict[str, str] = {}
    for name in (listed := list(dict.fromkeys(names))):
        known.setdefault(normalize_name(name), name)
    if said in listed:
        return said
    if (wanted := normalize_name(said)) in known:
        return known[wanted]
    near = get_close_matches(wanted, known, n=3, cutoff=0.6)
    near += sorted(name for name in known if wanted and wanted in name and name not in near)[:5]
    hint = f"Did you mean {' or '.join(known[name] for name in near)}? " if near else ""
    more = f" and {len(listed) - 24} more" if len(listed) > 24 else ""
    raise BadInput(f"{what} {said[:80]!r}: unknown. {hint}Available: {', '.join(listed[:24]) or 'none'}{more}.")


def normalize_name(name: str) -> str:
    """The form of a name in which names are compared."""
    return "-".join(name.casefold().replace("_", " ").replace("-", " ").split())


def parse_benchmarks(said: str) -> tuple[str, ...]:
    """The names in a list with commas, official ones as they are spelled; `all`: every official one. Raises BadInput for an empty list."""
    official = {normalize_name(name): name for name in BENCHMARKS}
    found = [official.get(normalize_name(name), name) for part in said.split(",") if (name := part.strip())]
    if not found:
        raise BadInput(f"benchmark {said!r}: name one, several with commas, or all. Official: {', '.join(BENCHMARKS)}.")
    return BENCHMARKS if [normalize_name(name) for name in found] == ["all"] else tuple(dict.fromkeys(found))
