"""One case with everything that is known of it, and its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dataset_builders.errors import BadInput
from eval_harness.records.result import Images
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.evidence.answers_shown import NONE, answers_to, shown_to
from leaderboard_space.data.evidence.case_lists import right_of_case, sharing_images
from leaderboard_space.data.ranks.sight import arms_of
from leaderboard_space.data.result_names import find_result
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.units.outcomes import Outcomes
from leaderboard_space.data.units.scoring import Ints
from leaderboard_space.html import count, text
from leaderboard_space.views.addresses import address_of, case_address, set_name
from leaderboard_space.views.case_pages.case import MOST_SAID, article, given_to, in_full
from leaderboard_space.views.case_pages.case_results import counted_of, datasets_of, shown_of
from leaderboard_space.views.parts import CITE_BOX, acts, files
from leaderboard_space.views.tables.choices import Request

MOST_NEIGHBOURS = 12
SHOWN: dict[Images, str] = {
    "real": "its own image",
    "withheld": "no image",
    "blank": "a grey image",
    "swapped": "another case's image",
}
"""What a run shows, in words."""


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
        f"{text(sentences.case_result(*_tally(section, outcomes, case)), 300)}</h2>{drawn}"
        f"{_without_the_image(section, outcomes, case, entries)}{_neighbours(section, outcomes, case)}"
    )


def _without_the_image(section: Section, outcomes: Outcomes, case: int, entries: Sequence[Entry]) -> str:
    """What models answered to the questions of a case without the right images, and what they were shown."""
    questions = outcomes.questions[outcomes.case_of_question == case]
    asked = questions["question_id"].tolist()
    rows = ""
    for entry in entries:
        for image, arm in arms_of(section, entry).items():
            try:
                answers, shown = answers_to(arm, asked), shown_to(arm, asked)
            except BadInput:
                continue
            for _, question in questions.iterrows():
                name = question["question_id"]
                choice, status, said = answers.get(name, NONE)
                seen = f"image {', '.join(shown[name])}" if shown.get(name) else SHOWN[image]
                answer = in_full(question, choice) if choice else f"({status}) {said[:MOST_SAID]}"
                cells = (entry.result.model.name, name, seen, answer)
                rows += f"<tr>{''.join(f'<td><bdi>{text(each, 200)}</bdi></td>' for each in cells)}</tr>"
    if not rows:
        return ""
    heads = "".join(f'<th scope="col">{each}</th>' for each in ("Model", "Question", "Shown", "Answer"))
    return (
        f'<h3>Without the right image</h3><div class="scroll"><table class="plain left" aria-label="Without the right image">'
        f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
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
