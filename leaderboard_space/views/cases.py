"""Cases: the questions of a set, with options, key, and who answered what; images only where their terms allow it."""

from __future__ import annotations

import base64
from collections import defaultdict

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.scores import HEADLINE
from leaderboard_space import sentences
from leaderboard_space.data.answers_shown import NONE, Answer, answers_to
from leaderboard_space.data.board import Board
from leaderboard_space.data.case_images import CaseImages
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.sections import Entry, Section
from leaderboard_space.data.tree import shown_label
from leaderboard_space.export import Table, as_file
from leaderboard_space.html import count, options, text
from leaderboard_space.views.choices import Request, chosen_section, key_of, labels, section_select
from leaderboard_space.views.parts import files

PER_PAGE = 8
LARGEST_IMAGE = 3_000_000
MOST_RUNS = 60
MOST_IN_FILE = 500
MOST_SAID = 100
"""Characters shown of a response that names no option."""
IMAGES = CaseImages()
"""One for the process: what was fetched for one reader is there for the next."""
ORDERS = (("stored", "as stored"), ("wrong", "most often wrong first"), ("split", "most disputed first"))
PICTURES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `find` (a text), `order`, `page` (from 1)."""
    found = chosen_section(board, request)
    if found is None:
        return '<h2 class="finding">No questions are known yet.</h2>'
    key, section = found
    outcomes = _outcomes(board, section)
    if outcomes is None:
        gone = '<h2 class="finding">The questions of this set are not in the store.</h2>'
        return f'<div class="form">{section_select(board, key)}</div>{gone}'
    wanted, order, cases = _chosen(outcomes, request)
    pages = max(-(-len(cases) // PER_PAGE), 1)
    number = min(max(_whole(request.get("page")), 1), pages)
    shown = cases[(number - 1) * PER_PAGE : number * PER_PAGE]
    entries = _shown(section, outcomes)
    given = _given(outcomes, shown, entries)
    body = "".join(_case(section, outcomes, case, entries, given) for case in shown.tolist())
    orders = options(list(ORDERS), order)
    which = (
        "" if len(cases) <= MOST_IN_FILE else f" The files hold the first {count(MOST_IN_FILE)} cases of this choice."
    )
    if len(entries) < len(outcomes.runs):
        which += f" Of {count(len(outcomes.runs))} results the best {len(entries)} are shown."
    return (
        f'<div class="form">{section_select(board, key)}<label>Order <select data-name="order">{orders}</select></label>'
        f'<label>Search <input data-name="find" type="search" value="{text(wanted, 200)}" placeholder="words, id, category"></label>'
        f'<span class="acts"><button type="button" class="link" data-act="link">Copy link</button>{files("cases")}</span></div>'
        f'<h2 class="finding">{sentences.cases_found(len(cases), bool(wanted.strip()))}</h2>'
        '<p class="sub">The key is marked; after each option stand the results that chose it. Images appear where the dataset can be '
        "read and "
        f"its licences let anybody pass them on.{which}</p>{body}{_turn(number, pages)}"
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """The chosen cases as a file (`name`, `text`, `type`), a row per question and result. `as`: csv or json.

    Raises BadInput when no questions are known.
    """
    found = chosen_section(board, request)
    outcomes = _outcomes(board, found[1]) if found else None
    if found is None or outcomes is None:
        raise BadInput("the questions of this set are not in the store.")
    section = found[1]
    _, _, cases = _chosen(outcomes, request)
    entries = _shown(section, outcomes)
    given = _given(outcomes, cases[:MOST_IN_FILE], entries)
    place = {case: number for number, case in enumerate(cases[:MOST_IN_FILE].tolist())}
    rows = np.flatnonzero(np.isin(outcomes.case_of_question, list(place)))
    rows = rows[np.argsort([place[case] for case in outcomes.case_of_question[rows].tolist()], kind="stable")]
    table: Table = []
    for _, question in outcomes.questions.iloc[rows].iterrows():
        asked = {
            "case_id": question["case_id"],
            "question_id": question["question_id"],
            "question": question["question"],
            "options": " | ".join(f"{chr(65 + at)} {option}" for at, option in enumerate(question["options"])),
            "key": ", ".join(chr(65 + option) for option in key_of(section, question)) or None,
            "labels": "; ".join(_facts(question)),
        }
        for entry in entries:
            if entry.key in given:
                choice, status, said = given[entry.key].get(question["question_id"], NONE)
                chosen = ", ".join(chr(65 + option) for option in choice)
                table.append(
                    {
                        **asked,
                        "model": entry.result.model.name,
                        "run": entry.key,
                        "chosen": chosen,
                        "status": status,
                        "response": said,
                    }
                )
    return as_file(table, f"cases-{section.benchmark}-{section.key}", str(request.get("as")))


def _outcomes(board: Board, section: Section) -> Outcomes | None:
    loaded = board.outcomes(section)
    return loaded[0] if loaded else None


def _chosen(outcomes: Outcomes, request: Request) -> tuple[str, str, np.ndarray]:
    """The words looked for, the order, and the numbers of the cases in it."""
    wanted = str(request.get("find") or "")[:200]
    order = str(request.get("order")) if str(request.get("order")) in dict(ORDERS) else "stored"
    return wanted, order, _ordered(outcomes, _matching(outcomes, wanted), order)


def _shown(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are shown: all, or the best where there are more than a reader can take in."""
    name = _headline(outcomes)
    if name is None:
        return [entry for entry in section.entries if entry.key in outcomes.runs][:MOST_RUNS]
    units = outcomes.metrics[name]
    share = dict(zip(outcomes.runs, units.top.sum(axis=1, dtype=float).tolist(), strict=True))
    entries = [entry for entry in section.entries if entry.key in share]
    best = {entry.key for entry in sorted(entries, key=lambda entry: -share[entry.key])[:MOST_RUNS]}
    return [entry for entry in entries if entry.key in best]


Given = dict[str, dict[str, Answer]]
"""Entry key -> question id -> answer. Results whose answers cannot be read are missing."""


def _given(outcomes: Outcomes, cases: np.ndarray, entries: list[Entry]) -> Given:
    """What the results answered to the questions of some cases."""
    asked = outcomes.questions["question_id"][np.isin(outcomes.case_of_question, cases)].tolist()
    found: Given = {}
    for entry in entries:
        try:
            if entry.answers is not None:
                found[entry.key] = answers_to(entry.answers, asked)
        except BadInput:
            continue
    return found


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


def _headline(outcomes: Outcomes) -> str | None:
    """The score that says what is right: of every question, not of the one aspect or scenario that happens to come first. None where
    every key is hidden."""
    name = HEADLINE.get(outcomes.format)
    return name if name in outcomes.metrics else next(iter(outcomes.metrics), None)


def _ordered(outcomes: Outcomes, cases: np.ndarray, order: str) -> np.ndarray:
    """`wrong`: the cases that fewest results got right first; `split`: those about which results differ most."""
    name = _headline(outcomes)
    if order == "stored" or not cases.size or name is None:
        return cases
    units, place = outcomes.metrics[name], outcomes.places[name]
    share = (units.top > 0).mean(axis=0)
    total = np.bincount(place.case, minlength=int(outcomes.case_of_question.max()) + 1)
    right = np.bincount(place.case, share, minlength=total.size) / np.maximum(total, 1)
    rate = np.where(total > 0, right, 2.0)[cases]
    return cases[np.argsort(rate if order == "wrong" else np.abs(rate - 0.5), kind="stable")]


def _case(section: Section, outcomes: Outcomes, case: int, entries: list[Entry], given: Given) -> str:
    rows = outcomes.questions[outcomes.case_of_question == case]
    named = labels(entries)
    pictures = _pictures(section, str(rows["case_id"].iloc[0]))
    body = "".join(_question(section, question, given, named) for _, question in rows.iterrows())
    return (
        f'<article class="case"><h3>Case {text(rows["case_id"].iloc[0], 60)}</h3><div class="seen">{pictures}'
        f'<div class="questions">{body}</div></div></article>'
    )


def _facts(question: pd.Series) -> list[str]:
    """The labels that the source gives a question."""
    facts = [
        shown_label(name, str(question.get(name)))
        for name in ("department", "modality", "task", "organ", "scenario", "aspect")
        if isinstance(question.get(name), str)
    ]
    categories = question.get("categories")
    return facts + ([str(label) for label in categories] if isinstance(categories, list) else [])


def _question(section: Section, question: pd.Series, given: Given, named: dict[str, str]) -> str:
    chosen: dict[int, list[str]] = defaultdict(list)
    nothing: list[str] = []
    for run, answers in given.items():
        choice, status, said = answers.get(question["question_id"], NONE)
        for option in choice:
            chosen[option].append(named[run])
        if not choice:
            quoted = (
                f": “{' '.join(said[:MOST_SAID].split())}{'…' if len(said) > MOST_SAID else ''}”"
                if said.strip()
                else ""
            )
            nothing.append(f"{named[run]} ({status}{quoted})")
    key = set(key_of(section, question))
    lines = "".join(
        f'<li class="{"key" if number in key else ""}"><b>{chr(65 + number)}</b> {text(option, 300)}'
        f"{' <em>key</em>' if number in key else ''} <span>{text(', '.join(chosen[number]), 600)}</span></li>"
        for number, option in enumerate(question["options"])
    )
    rest = f'<p class="fine">Named no option: {text(", ".join(nothing), 1500)}</p>' if nothing else ""
    hidden = "" if key else ' <span class="fine">(key hidden by the source)</span>'
    return (
        f'<div class="question"><p>{text(question["question"], 2000)}{hidden} <span class="fine">'
        f"{text(' · '.join([str(question['question_id']), *_facts(question)]), 300)}</span></p><ol>{lines}</ol>{rest}</div>"
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


def _pictures(section: Section, case_id: str) -> str:
    """The images of a case that may be shown; while they are on their way from the Hub a note that the browser asks again for."""
    images = IMAGES.get(section, case_id)
    if images is None:
        return '<div class="pictures" data-waiting><p class="fine">The images are being fetched.</p></div>'
    drawn = "".join(_picture(name, data) for name, data in images.items())
    return f'<div class="pictures">{drawn}</div>' if drawn else ""


def _picture(name: str, data: bytes) -> str:
    kind = next((mime for start, mime in PICTURES.items() if data.startswith(start)), None)
    if kind is None or len(data) > LARGEST_IMAGE:
        return ""
    return f'<img src="data:{kind};base64,{base64.b64encode(data).decode()}" alt="Image {text(name, 60)} of this case" loading="lazy">'
