"""The addresses of the board's views, as links write them: `#/PAGE/ID?key=value` (`assets/router.js` reads them)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from leaderboard_space.data.facets import facet_of
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.tree import SEPARATOR, Path
from leaderboard_space.html import text

LONGEST_ID = 300
"""Characters of an id in an address."""


def address_of(page: str, id: str = "", /, **named: str | Sequence[str] | None) -> str:
    """A link within the board, escaped for an attribute; a key with several values repeats, one without any is left out.

    >>> address_of("model", "A & B"), address_of("compare", result=["a", "b"], set=None)
    ('#/model/A%20%26%20B', '#/compare?result=a&amp;result=b')
    """
    values = {name: [value] if isinstance(value, str) else value or () for name, value in named.items()}
    pairs = [(name, one) for name, held in values.items() for one in held if one]
    path = f"#/{page}/{quote(id, safe='')}" if id else f"#/{page}"
    return text(f"{path}?{urlencode(pairs, quote_via=quote, safe='/')}" if pairs else path, 8000)


def set_name(section: Section) -> str:
    """How an address names a set of questions on the pages Compare and Cases."""
    return f"{section.family}/{section.key}"


def benchmark_address(
    section: Section, metric: str | None = None, branch: Path | None = None, every: bool = False
) -> str:
    """The leaderboard of a set of questions, by a metric, on a branch or a facet's label; `every`: with all rows of a long table."""
    facet = facet_of(branch) if branch else None
    said = f"{facet or branch[0]}:{SEPARATOR.join(branch[1:])}" if branch else None
    where = {"facet" if facet else "branch": said}
    return address_of("b", section.family, s=section.key, m=metric, all="yes" if every else None, **where)


def model_address(name: str) -> str:
    """The page of a model; for a name that no honest model has, the page that says so."""
    return address_of("model", name if len(name) <= LONGEST_ID else "")


def case_address(section: Section, case_id: str) -> str:
    """One case of a set of questions."""
    return address_of("cases", case_id, set=set_name(section))
