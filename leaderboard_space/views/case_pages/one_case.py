"""One case with everything that is known of it, and its neighbours."""

from __future__ import annotations

import numpy as np

from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.evidence.case_lists import right_of_case, sharing_images
from leaderboard_space.data.result_names import find_result
from leaderboard_space.data.store.sections import Section
from leaderboard_space.data.units.outcomes import Outcomes
from leaderboard_space.data.units.scoring import Ints
from leaderboard_space.html import count, text
from leaderboard_space.views.addresses import address_of, case_address, set_name
from leaderboard_space.views.case_pages.case import article, given_to
from leaderboard_space.views.case_pages.case_results import counted_of, datasets_of, shown_of
from leaderboard_space.views.parts import CITE_BOX, acts, files
from leaderboard_space.views.tables.choices import Request

MOST_NEIGHBOURS = 12


def case_named(outcomes: Outcomes, case_id: str) -> Ints:
    """The number of the case of an id; empty where there is none."""
    rows = np.flatnonzero((outcomes.questions["case_id"].astype(str) == case_id).to_numpy(dtype=bool))
    return np.unique(outcomes.case_of_question[rows])


def view(board: Board, section: Section, outcomes: Outcomes, request: Request) -> str:
    """A case alone, as `request` names it (`id`); with `first`, `second` beside the answers of these results only."""
    case_id = str(request["id"])[:300]
    every = f'<a class="link" href="{address_of("cases", set=set_name(section))}">All cases of this set</a>'
    found = case_named(outcomes, case_id)
    if not found.size:
        return f'<h2 class="finding">Case {text(case_id, 80)} is not in this set of questions.</h2><p>{every}</p>'
    case = int(found[0])
    named = [
        entry for name in ("first", "second") if (entry := find_result(section.entries, str(request.get(name) or "-")))
    ]
    entries = named or shown_of(section, outcomes)
    given = given_to(outcomes, found, entries)
    drawn = article(section, outcomes, case, entries, given, datasets_of(board, section), most=len(entries))
    shown = f' <a class="link" href="{case_address(section, case_id)}">All answers to it</a>' if named else ""
    save = files("cases")
    return (
        f'<div class="form"><span class="acts">{every}{shown}'
        f"{acts(tables=False)}{save}</span></div>{CITE_BOX}"
        f'<h2 class="finding" data-title="Case {text(case_id, 60)}">'
        f"{text(sentences.case_result(*_tally(section, outcomes, case)), 300)}</h2>{drawn}{_neighbours(section, outcomes, case)}"
    )


def _tally(section: Section, outcomes: Outcomes, case: int) -> tuple[int, int, int]:
    """Of the counted results: how many got all of a case right, how many nothing, and how many are scored on it."""
    shares = right_of_case(outcomes, counted_of(section, outcomes), case)
    known = shares[np.isfinite(shares)]
    return int((known == 1).sum()), int((known == 0).sum()), int(known.size)


def _neighbours(section: Section, outcomes: Outcomes, case: int) -> str:
    """What is near a case: the ones before and after it, and those that hold one of its images."""
    ids = outcomes.questions.drop_duplicates("case_id")["case_id"].astype(str).tolist()

    def link(at: int, said: str) -> str:
        return f'<a href="{case_address(section, ids[at])}">{text(said, 80)}</a>'

    turn = [link(case - 1, f"Before: case {ids[case - 1]}")] if case > 0 else []
    turn += [link(case + 1, f"Next: case {ids[case + 1]}")] if case + 1 < len(ids) else []
    near = sharing_images(outcomes, case)
    rest = f" and {count(near.size - MOST_NEIGHBOURS)} more" if near.size > MOST_NEIGHBOURS else ""
    links = ", ".join(link(at, f"case {ids[at]}") for at in near[:MOST_NEIGHBOURS].tolist())
    shared = f"<p>Cases that share an image with it: {links}{rest}.</p>" if near.size else ""
    return f'<h3>Its neighbours</h3>{shared}<nav class="turn" aria-label="Neighbouring cases">{"".join(turn)}</nav>'
