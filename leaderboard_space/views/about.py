"""The page About: the text is `assets/about.html`, with the table of departments in it."""

from __future__ import annotations

from pathlib import Path

from leaderboard_space.benchmarks import LABELS
from leaderboard_space.data.published_tables import departments
from leaderboard_space.html import text

PAGE = Path(__file__).parents[1] / "assets" / "about.html"


def page() -> str:
    """The page as HTML."""
    rows = "".join(
        f'<tr><th scope="row">{text(row["label"])}</th>'
        f"<td>{text(LABELS.get(row['benchmark'], row['benchmark']))}, {text(row['facet'])}</td>"
        f"<td>{text(row['department'] or 'unlabelled')}</td><td>{text(row['why'], 300)}</td></tr>"
        for row in departments()
    )
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Departments"><table aria-label="Departments">'
        '<thead><tr><th scope="col">Label</th>'
        f'<th scope="col">Of</th><th scope="col">Department</th><th scope="col">Why</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )
    return PAGE.read_text(encoding="utf-8").replace("<!-- departments -->", table)
