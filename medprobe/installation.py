"""Find packages of another project, or folders of the user, that Python would import in place of ours."""

from __future__ import annotations

from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

LIBRARY = ("dataset_builders", "eval_harness", "leaderboard_space")
"""The packages that `import medprobe` needs."""
PACKAGES = (*LIBRARY, "curation")
"""Those that the command line needs."""


def hidden_package(names: tuple[str, ...] = PACKAGES) -> str | None:
    """One line about the first of these packages that Python would not import from beside `medprobe`, with the remedy; imports none."""
    here = Path(__file__).resolve().parents[1]
    for name in names:
        spec = find_spec(name)
        found = [Path(folder).resolve() for folder in (spec.submodule_search_locations or ())] if spec else []
        if here / name not in found[:1]:
            where = found[0] if found else spec.origin if spec else None
            told = f"Python finds {where}" if where else "it is not there"
            return f"the package {name} should be in {here}, but {told}. {remedy(name)}"
    return None


def other_owners(name: str) -> list[str]:
    """The other distributions that have a package of this name."""
    return sorted({owner for owner in packages_distributions().get(name, ()) if owner.lower() != "medprobe"})


def remedy(name: str) -> str:
    """How to get our package `name` imported."""
    others = other_owners(name)
    if others:
        cause = f"The distribution {' and '.join(others)} has a package of that name, too. "
        return f"{cause}Install medprobe into a virtual environment of its own."
    return f"Rename what else is called {name}, or install medprobe again into a virtual environment of its own."
