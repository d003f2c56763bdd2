"""One case drawn: its images where they may be shown, its questions with options and key, and who answered what."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from urllib.parse import urlencode

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from leaderboard_space.data.board import Board
from leaderboard_space.data.case_images import CaseImages, Dataset
from leaderboard_space.data.cases import NO_ANSWER, Answer, answers_to, headline_of
from leaderboard_space.data.model_names import labels
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import shown_label
from leaderboard_space.html import count, text
from leaderboard_space.views.parts import Request, address_of, case_address, chosen_section, key_of, set_name

NAMED = 3
"""Results of which all are named beside what they chose; of more their number, which opens into their names."""
MOST_SAID = 100
"""Characters shown of a response that names no option."""
IMAGES = CaseImages()
"""One for the process: what was fetched for one reader is there for the next."""
PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
FACTS = ("department", "modality", "task", "organ", "scenario", "aspect")
"""Columns of which a question's values are shown beside it."""

Given = dict[str, dict[str, Answer]]
"""Entry key -> question id -> answer. Results whose answers cannot be read are missing."""


def given_to(outcomes: Outcomes, cases: np.ndarray, entries: Sequence[Entry]) -> Given:
    """What the results answered to the questions of some cases."""
    asked = outcomes.questions["question_id"][np.isin(outcomes.case_of_question, cases)].tolist()
    found: Given = {}
    for entry in entries:
        try:
            if entry.answers is not None:
                found[entry.key] = answers_to(entry, asked)
        except BadInput:
            continue
    return found


def article(
    section: Section,
    outcomes: Outcomes,
    case: int,
    entries: Sequence[Entry],
    given: Given,
    datasets: Sequence[Dataset] = (),
    head: str = "",
) -> str:
    """A case as HTML. `head`: what stands beside its title; `datasets`: where its images may be, besides what its results name."""
    rows = outcomes.questions[outcomes.case_of_question == case]
    named, case_id = labels(list(entries)), str(rows["case_id"].iloc[0])
    body = "".join(_question(section, question, given, named) for _, question in rows.iterrows())
    title = f'<a href="{case_address(section, case_id)}">Case {text(case_id, 60)}</a>'
    return (
        f'<article class="case"><h3>{title} {head}</h3><div class="seen">{_pictures(section, case_id, datasets)}'
        f'<div class="questions">{body}</div></div></article>'
    )


def labels_of(question: pd.Series) -> list[tuple[str, str]]:
    """The labels that the source gives a question, with their facets."""
    pairs = [(name, str(question.get(name))) for name in FACTS if isinstance(question.get(name), str)]
    categories = question.get("categories")
    return pairs + ([("category", str(label)) for label in categories] if isinstance(categories, list) else [])


def letters(chosen: Sequence[int]) -> str:
    """Options by their letters."""
    return ", ".join(chr(65 + option) for option in chosen)


def in_full(question: pd.Series, chosen: Sequence[int]) -> str:
    """Options with their letters and texts; an option that the question does not have by its letter alone."""
    options = list(question["options"])
    return "; ".join(f"{chr(65 + at)} {options[at]}" if at < len(options) else chr(65 + at) for at in chosen)


def _question(section: Section, question: pd.Series, given: Given, named: dict[str, str]) -> str:
    chosen: dict[int, list[str]] = defaultdict(list)
    nothing: list[str] = []
    ends: Counter[str] = Counter()
    for run, answers in given.items():
        choice, status, said = answers.get(question["question_id"], NO_ANSWER)
        for option in choice:
            chosen[option].append(f"<bdi>{text(named[run], 80)}</bdi>")
        if not choice:
            quoted = (
                f": “{' '.join(said[:MOST_SAID].split())}{'…' if len(said) > MOST_SAID else ''}”"
                if said.strip()
                else ""
            )
            ends[status] += 1
            nothing.append(f"<bdi>{text(named[run], 80)}</bdi> <bdi>{text(f'({status}{quoted})', 200)}</bdi>")
    key = set(key_of(section, question))
    lines = "".join(
        f'<li class="{"key" if number in key else ""}"><b>{chr(65 + number)}</b> <bdi>{text(option, 300)}</bdi>'
        f"{' <em>key</em>' if number in key else ''} <span>{_counted(chosen[number], len(given))}</span></li>"
        for number, option in enumerate(question["options"])
    )
    why = ", ".join(f"{count(number)} {status}" for status, number in ends.items())
    rest = f'<div class="fine">Named no option: {_counted(nothing, len(given), f" ({why})")}</div>' if nothing else ""
    hidden = "" if key else ' <span class="fine">(key hidden by the source)</span>'
    links = " · ".join(
        f'<a href="{address_of("cases", set=set_name(section), label=f"{facet}:{label}")}">{text(shown_label(facet, label), 80)}</a>'
        for facet, label in labels_of(question)
    )
    return (
        f'<div class="question"><p><bdi>{text(question["question"], 2000)}</bdi>{hidden} <span class="fine">'
        f"{text(question['question_id'], 100)}{' · ' if links else ''}{links}</span></p><ol>{lines}</ol>{rest}</div>"
    )


def _counted(who: Sequence[str], of: int, more: str = "") -> str:
    """Who chose something, as HTML: by name where few results are shown, else how many, which opens into the names."""
    if of <= NAMED or not who:
        return ", ".join(who)
    return f"<details><summary>{count(len(who))} of {count(of)}{text(more)}</summary>{', '.join(who)}</details>"


def _pictures(section: Section, case_id: str, datasets: Sequence[Dataset]) -> str:
    """The images of a case that may be shown; while they are on their way from the Hub a note that the browser asks again for."""
    images = IMAGES.get(section, case_id, datasets)
    if images is None:
        return '<div class="pictures" data-waiting><p class="fine">The images are being fetched.</p></div>'
    drawn = "".join(
        _picture(
            name if len(images) == 1 else f"{number} of {len(images)}, {name}, in the order of the question,",
            f"board/cases/image?{urlencode({'set': set_name(section), 'case': case_id, 'name': name})}",
        )
        for number, (name, data) in enumerate(images.items(), 1)
        if kind_of(data) is not None
    )
    return f'<div class="pictures">{drawn}</div>' if drawn else ""


def _picture(name: str, address: str) -> str:
    image = f'<img src="{text(address, 2000)}" alt="Image {text(name, 120)} of this case" loading="lazy">'
    return f'<button type="button" class="picture" aria-expanded="false" title="Larger or smaller">{image}</button>'


def kind_of(data: bytes) -> str | None:
    """The media type of an image that browsers show; None for other files."""
    return next((mime for start, mime in PICTURES.items() if data.startswith(start)), None)


def picture(board: Board, request: Request) -> tuple[bytes, str]:
    """The image `name` of a case (`set`, `case`) with its media type. Raises BadInput where there is none that may be shown."""
    found = chosen_section(board, request)
    if found is not None and found[0] == request.get("set"):
        section = found[1]
        images = IMAGES.get(section, str(request.get("case")), datasets_of(board, section)) or {}
        data = images.get(str(request.get("name")), b"")
        if (kind := kind_of(data)) is not None:
            return data, kind
    raise BadInput("this image is not on the board. Reload the page.")


MOST_RUNS = 60


def answered_of(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are known."""
    return [entry for entry in section.entries if entry.key in outcomes.row_of]


def counted_of(section: Section, outcomes: Outcomes) -> list[str]:
    """The results by which a case counts as wrong or disputed: all that are neither baselines nor withdrawn, where there are any."""
    models = [
        entry.key
        for entry in section.entries
        if entry.key in outcomes.row_of
        and entry.result.model.kind != "baseline"
        and entry.provenance.withdrawal is None
    ]
    return models or list(outcomes.runs)


def shown_of(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are shown: all, or the best where there are more than a reader can take in."""
    name, entries = headline_of(outcomes), answered_of(section, outcomes)
    if name is not None:
        share = dict(zip(outcomes.runs, outcomes.metrics[name].shares().tolist(), strict=True))
        best = sorted(entries, key=lambda entry: -np.nan_to_num(share[entry.key]))[:MOST_RUNS]
        return [entry for entry in entries if entry in best]
    return entries[:MOST_RUNS]


def datasets_of(board: Board, section: Section) -> list[Dataset]:
    """The datasets that the board's owner vouches for and that hold the questions of a section: their images may be shown, too."""
    return [
        (str(split.benchmark.repo), split.benchmark.revision)
        for split in board.trusted.splits
        if split.benchmark.fingerprint == section.fingerprint and split.benchmark.repo
    ]
