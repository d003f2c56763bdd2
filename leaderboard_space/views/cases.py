"""Cases: the questions of a set, with options, key, and who answered what; images only where their terms allow it."""

from __future__ import annotations

import base64
from collections import defaultdict
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.image_terms import allows_copies
from dataset_builders.repository import Repository, open_repository
from leaderboard_space.answers_shown import responses
from leaderboard_space.html import count, options, plural, text
from leaderboard_space.outcomes import Outcomes
from leaderboard_space.sections import Board, Entry, Section
from leaderboard_space.views.choices import Request, chosen_section, labels, section_select

PER_PAGE = 8
LARGEST_IMAGE = 3_000_000
MOST_RUNS = 24
ORDERS = (("stored", "as stored"), ("wrong", "most often wrong first"), ("split", "most disputed first"))
PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `find` (a text), `order`, `page` (from 1)."""
    found = chosen_section(board, request)
    if found is None:
        return '<h2 class="finding">No questions are known yet.</h2>'
    key, section = found
    loaded = board.outcomes(section)
    outcomes = loaded[0] if loaded else None
    if outcomes is None:
        gone = '<h2 class="finding">The questions of this set are not in the store.</h2>'
        return f'<div class="form">{section_select(board, key)}</div>{gone}'
    wanted = str(request.get("find") or "")[:200]
    order = str(request.get("order")) if str(request.get("order")) in dict(ORDERS) else "stored"
    cases = _ordered(outcomes, _matching(outcomes, wanted), order)
    pages = max(-(-len(cases) // PER_PAGE), 1)
    number = min(max(_whole(request.get("page")), 1), pages)
    shown = cases[(number - 1) * PER_PAGE : number * PER_PAGE]
    body = "".join(_case(section, outcomes, case) for case in shown.tolist())
    orders = options(list(ORDERS), order)
    return (
        f'<div class="form">{section_select(board, key)}<label>Order <select data-name="order">{orders}</select></label>'
        f'<label>Search <input data-name="find" type="search" value="{text(wanted, 200)}" placeholder="words, id, category"></label></div>'
        f'<h2 class="finding">{plural(len(cases), "case")}{" match" if wanted else ""}.</h2>'
        f'<p class="sub">Images appear where the dataset lies on this machine and their licence lets them be shown.</p>{body}'
        f"{_turn(number, pages)}"
    )


def _whole(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 1


def _matching(outcomes: Outcomes, wanted: str) -> np.ndarray:
    """Numbers of the cases of which any question has every word in its text, id, options or labels."""
    case = outcomes.case_of_question
    if not wanted.strip():
        return np.unique(case)
    questions = outcomes.questions
    columns = [name for name in ("question_id", "question", "options", "categories", "department", "modality", "task", "keyword",
                                 "organ", "image_type", "scenario") if name in questions.columns]  # fmt: skip
    haystack = questions[columns].fillna("").map(str).agg(" ".join, axis=1).str.lower()
    mask = np.ones(len(questions), dtype=bool)
    for word in wanted.lower().split():
        mask &= haystack.str.contains(word, regex=False).to_numpy(dtype=bool)
    return np.unique(case[mask])


def _ordered(outcomes: Outcomes, cases: np.ndarray, order: str) -> np.ndarray:
    """`wrong`: the cases that fewest results got right first; `split`: those about which results differ most."""
    if order == "stored" or not cases.size:
        return cases
    name = next(iter(outcomes.metrics))
    units, place = outcomes.metrics[name], outcomes.places[name]
    share = (units.top > 0).mean(axis=0)
    total = np.bincount(place.case, minlength=int(outcomes.case_of_question.max()) + 1)
    right = np.bincount(place.case, share, minlength=total.size) / np.maximum(total, 1)
    rate = np.where(total > 0, right, 2.0)[cases]
    return cases[np.argsort(rate if order == "wrong" else np.abs(rate - 0.5), kind="stable")]


def _case(section: Section, outcomes: Outcomes, case: int) -> str:
    rows = outcomes.questions[outcomes.case_of_question == case]
    entries = [entry for entry in section.entries if entry.key in outcomes.runs][:MOST_RUNS]
    named = labels(entries)
    pictures = _pictures(section, rows)
    body = "".join(_question(question, entries, named) for _, question in rows.iterrows())
    return f'<article class="case"><h3>Case {text(rows["case_id"].iloc[0], 60)}</h3>{pictures}{body}</article>'


def _question(question: pd.Series, entries: list[Entry], named: dict[str, str]) -> str:
    chosen: dict[int, list[str]] = defaultdict(list)
    nothing: list[str] = []
    for entry in entries:
        assert entry.answers is not None
        try:
            answers = responses(entry.answers)
        except BadInput:
            continue
        if question["question_id"] not in answers.index:
            nothing.append(f"{named[entry.key]} (no answer)")
            continue
        row = answers.loc[question["question_id"]]
        for option in row["choice"]:
            chosen[int(option)].append(named[entry.key])
        if not len(row["choice"]):
            nothing.append(f"{named[entry.key]} ({row['status']})")
    key = {int(option) for option in question["answer"]}
    lines = "".join(
        f'<li class="{"key" if number in key else ""}"><b>{chr(65 + number)}</b> {text(option, 300)}'
        f"{' <em>key</em>' if number in key else ''} <span>{text(', '.join(chosen[number]), 600)}</span></li>"
        for number, option in enumerate(question["options"])
    )
    facts = [str(question.get(name)) for name in ("department", "modality", "task", "organ", "scenario", "aspect")
             if isinstance(question.get(name), str)]  # fmt: skip
    categories = question.get("categories")
    facts += [str(label) for label in categories] if isinstance(categories, list) else []
    rest = f'<p class="fine">Read no option: {text(", ".join(nothing), 600)}</p>' if nothing else ""
    hidden = "" if key else ' <span class="fine">(key hidden by the source)</span>'
    return (
        f'<div class="question"><p>{text(question["question"], 2000)}{hidden} <span class="fine">'
        f"{text(' · '.join([str(question['question_id']), *facts]), 300)}</span></p><ol>{lines}</ol>{rest}</div>"
    )


def _turn(number: int, pages: int) -> str:
    if pages == 1:
        return ""
    back = (
        f'<button type="button" class="link" data-name="page" value="{number - 1}">Previous</button>'
        if number > 1
        else ""
    )
    on = (
        f'<button type="button" class="link" data-name="page" value="{number + 1}">Next</button>'
        if number < pages
        else ""
    )
    return f'<nav class="turn" aria-label="Pages">{back}<span class="fine">Page {count(number)} of {count(pages)}</span>{on}</nav>'


@lru_cache(maxsize=32)
def _repository(place: str, split: str, mark: str) -> Repository | None:
    """The dataset of a section, if it lies in a folder here and holds exactly these questions."""
    if not Path(place).is_dir():
        return None
    try:
        repository = open_repository(place)
        same = repository.manifest["splits"][split]["fingerprint"] == mark
        return repository if same and repository.has_images else None
    except (BadInput, KeyError, OSError):
        return None


def _pictures(section: Section, rows: pd.DataFrame) -> str:
    """The images of a case that may be shown: those we drew, and those whose licence lets anybody pass them on."""
    allowed = section.kind == "phantom" or all(
        allows_copies(value) for value in rows.get("image_license", pd.Series([None]))
    )
    places = {entry.result.benchmark.repo for entry in section.entries if entry.result.benchmark.repo}
    if not allowed or section.fingerprint is None:
        return ""
    for place in sorted(str(place) for place in places):
        repository = _repository(place, section.split, section.fingerprint)
        if repository is None:
            continue
        if section.kind == "phantom" and repository.origin != "phantom":
            continue
        try:
            (case,) = repository.cases(section.split, [str(rows["case_id"].iloc[0])])
        except (BadInput, ValueError, OSError):
            continue
        return "".join(_picture(name, data) for name, data in case.images.items())
    return ""


def _picture(name: str, data: bytes) -> str:
    kind = next((mime for start, mime in PICTURES.items() if data.startswith(start)), None)
    if kind is None or len(data) > LARGEST_IMAGE:
        return ""
    return f'<img src="data:{kind};base64,{base64.b64encode(data).decode()}" alt="Image {text(name, 60)} of this case" loading="lazy">'
