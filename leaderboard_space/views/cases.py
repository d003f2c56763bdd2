"""Cases: the questions of a set with options, key, and who answered what: a list that can be searched and filtered, and one case with
its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dataset_builders.errors import BadInput
from leaderboard_space import sentences
from leaderboard_space.data.answers_shown import NONE
from leaderboard_space.data.board import Board
from leaderboard_space.data.case_images import Dataset
from leaderboard_space.data.case_lists import (
    headline_of,
    label_choices,
    labelled,
    matching,
    ordered,
    right_shares,
    selected,
    sharing_images,
)
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranking import Floats, Ints
from leaderboard_space.data.sections import Entry, Section
from leaderboard_space.data.tree import FACET_LABEL, shown_label
from leaderboard_space.export import Table, as_file
from leaderboard_space.html import count, options, text
from leaderboard_space.views.addresses import address_of, case_address, set_name
from leaderboard_space.views.case import article, facts_of, given_to, letters
from leaderboard_space.views.choices import (
    Request,
    chosen_section,
    key_of,
    labels,
    no_answers,
    result_input,
    section_select,
)
from leaderboard_space.views.parts import files

PER_PAGE = 8
MOST_RUNS = 60
MOST_IN_FILE = 500
MOST_NEIGHBOURS = 12
ORDERS = (("stored", "as stored"), ("wrong", "most often wrong first"), ("split", "most disputed first"))
SHOWN = (("", "all"), ("wrong", "all wrong"), ("disputed", "disputed"))


@dataclass(frozen=True)
class _List:
    """A list of cases as a request chooses it. `by`: the result whose mistakes alone are listed, where one is named; `shares` (K, C):
    how much of each case the counted results got right; `unknown`: a result that is named and not there."""

    section: Section
    outcomes: Outcomes
    cases: Ints
    wanted: str
    order: str
    show: str
    label: str
    by: Entry | None
    shares: Floats
    counted: int
    unknown: str = ""

    @property
    def is_part(self) -> bool:
        """Whether anything but the order was chosen."""
        return bool(self.wanted.strip() or self.show or self.label or self.by)


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `find` (words), `label` (facet:value), `show` (wrong, disputed), `model` (a result),
    `order`, `at` (the page, from 1); `id`: one case alone, then `first`, `second`: the results whose answers are shown."""
    found = chosen_section(board, request)
    if found is None:
        return no_answers("No questions are known yet.")
    key, section = found
    outcomes = _outcomes(board, section)
    if outcomes is None:
        gone = '<h2 class="finding">The questions of this set are not in the store.</h2>'
        return f'<div class="form">{section_select(board, key)}</div>{gone}'
    if request.get("id"):
        return _one(board, section, outcomes, request)
    chosen = _chosen(section, outcomes, request)
    pages = max(-(-len(chosen.cases) // PER_PAGE), 1)
    at = min(max(_whole(request.get("at") or request.get("page")), 1), pages)
    shown = chosen.cases[(at - 1) * PER_PAGE : at * PER_PAGE]
    entries = _shown(section, outcomes)
    if chosen.by is not None and chosen.by not in entries:
        entries = [*entries, chosen.by]
    given = given_to(outcomes, shown, entries)
    body = "".join(
        article(section, outcomes, case, entries, given, datasets_of(board, section)) for case in shown.tolist()
    )
    return (
        f"{_form(board, key, chosen)}"
        f'<h2 class="finding" data-title="Cases">{sentences.cases_found(len(chosen.cases), chosen.is_part)}</h2>'
        f'<p class="sub">{_explained(chosen, entries)}</p>{body}{_turn(at, pages)}'
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
    cases = _case(outcomes, str(request["id"])) if request.get("id") else _chosen(section, outcomes, request).cases
    entries = _shown(section, outcomes)
    given = given_to(outcomes, cases[:MOST_IN_FILE], entries)
    rank = {case: number for number, case in enumerate(cases[:MOST_IN_FILE].tolist())}
    rows = np.flatnonzero(np.isin(outcomes.case_of_question, list(rank)))
    rows = rows[np.argsort([rank[case] for case in outcomes.case_of_question[rows].tolist()], kind="stable")]
    table: Table = []
    for _, question in outcomes.questions.iloc[rows].iterrows():
        asked = {
            "case_id": question["case_id"],
            "question_id": question["question_id"],
            "question": question["question"],
            "options": " | ".join(f"{chr(65 + at)} {option}" for at, option in enumerate(question["options"])),
            "key": letters(key_of(section, question)) or None,
            "labels": "; ".join(facts_of(question)),
        }
        for entry in entries:
            if entry.key in given:
                choice, status, said = given[entry.key].get(question["question_id"], NONE)
                answered = {"chosen": letters(choice), "status": status, "response": said}
                table.append({**asked, "model": entry.result.model.name, "run": entry.key, **answered})
    return as_file(table, f"cases-{section.benchmark}-{section.key}", str(request.get("as")))


def failures(board: Board, section: Section, outcomes: Outcomes, entry: Entry, most: int) -> str:
    """The first cases that a result got wrong altogether, those that most others got right first; nothing where there is none."""
    others = [key for key in _counted(section, outcomes) if key != entry.key]
    mine = right_shares(outcomes, [entry.key])[0]
    cases = np.flatnonzero(mine == 0)
    if others:
        cases = ordered(cases, 1 - right_shares(outcomes, others), "wrong")
    given = given_to(outcomes, cases[:most], [entry])
    datasets = datasets_of(board, section)
    return "".join(article(section, outcomes, case, [entry], given, datasets) for case in cases[:most].tolist())


def datasets_of(board: Board, section: Section) -> list[Dataset]:
    """The datasets that the board's owner vouches for and that hold the questions of a section: their images may be shown, too."""
    return [
        (str(split.benchmark.repo), split.benchmark.revision)
        for split in board.trusted.splits
        if split.benchmark.fingerprint == section.fingerprint and split.benchmark.repo
    ]


def _outcomes(board: Board, section: Section) -> Outcomes | None:
    loaded = board.outcomes(section)
    return loaded[0] if loaded else None


def _answered(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are known."""
    return [entry for entry in section.entries if entry.key in outcomes.runs]


def _counted(section: Section, outcomes: Outcomes) -> list[str]:
    """The results by which a case counts as wrong or disputed: all that are neither baselines nor withdrawn, where there are any."""
    models = [
        entry.key
        for entry in section.entries
        if entry.key in outcomes.runs and entry.result.model.kind != "baseline" and entry.standing.withdrawal is None
    ]
    return models or list(outcomes.runs)


def _chosen(section: Section, outcomes: Outcomes, request: Request) -> _List:
    """The cases that a request chooses, in its order."""
    wanted = str(request.get("find") or "")[:200]
    order = str(request.get("order")) if str(request.get("order")) in dict(ORDERS) else "stored"
    show = str(request.get("show") or "") if str(request.get("show")) in dict(SHOWN) else ""
    facet, _, label = str(request.get("label") or "").partition(":")
    counted = _counted(section, outcomes)
    entries = _answered(section, outcomes)
    said = str(request.get("model") or "").strip()
    by = find_result(entries, said) if said else None
    mask = matching(outcomes, wanted)
    if label:
        mask &= labelled(outcomes, facet, label)
    shares = right_shares(outcomes, counted)
    mask &= selected(shares, show)
    if by is not None:
        mask &= right_shares(outcomes, [by.key])[0] < 1
    cases = ordered(np.flatnonzero(mask), shares, order)
    chosen_label = f"{facet}:{label}" if label else ""
    unknown = said if said and by is None else ""
    return _List(section, outcomes, cases, wanted, order, show, chosen_label, by, shares, len(counted), unknown)


def find_result(entries: Sequence[Entry], said: str) -> Entry | None:
    """The result that is named by its key, by its name in the list, or by its model."""
    named = labels(list(entries))
    exact = next((entry for entry in entries if said in (entry.key, named[entry.key])), None)
    return exact or next((entry for entry in entries if entry.result.model.name.lower() == said.lower()), None)


def _form(board: Board, key: str, chosen: _List) -> str:
    section, outcomes = chosen.section, chosen.outcomes
    entries = _answered(section, outcomes)
    labels_ = [("", "any")] + [
        (f"{facet}:{label}", f"{FACET_LABEL.get(facet, facet)}: {shown_label(facet, label)} ({count(size)})")
        for facet, label, size in label_choices(outcomes)
    ]
    by_label = (
        f'<label>Label <select data-name="label">{options(labels_, chosen.label)}</select></label>'
        if len(labels_) > 1
        else ""
    )
    model = chosen.unknown or (labels(entries)[chosen.by.key] if chosen.by else "")
    return (
        f'<div class="form">{section_select(board, key)}'
        f'<label>Search <input data-name="find" type="search" value="{text(chosen.wanted, 200)}" placeholder="words, id, category"></label>'
        f'{by_label}<label>Show <select data-name="show">{options(list(SHOWN), chosen.show)}</select></label>'
        f"{result_input('Wrong by', 'model', model, entries, 'any result')}"
        f'<label>Order <select data-name="order">{options(list(ORDERS), chosen.order)}</select></label>'
        f'<span class="acts"><button type="button" class="link" data-act="link">Copy link</button>{files("cases")}</span></div>'
    )


def _explained(chosen: _List, entries: Sequence[Entry]) -> str:
    """What is listed, and what is shown of it."""
    parts = []
    if chosen.show and headline_of(chosen.outcomes):
        parts.append(text(sentences.shown_cases(chosen.show, chosen.counted), 300))
    if chosen.by is not None:
        named = labels(_answered(chosen.section, chosen.outcomes))[chosen.by.key]
        parts.append(f"Of each, {text(named, 120)} did not score in full.")
    if chosen.unknown:
        parts.append(
            f"No result of the name {text(repr(chosen.unknown), 140)} has answers here: it is left out of the choice."
        )
    parts.append(
        "The key is marked; after each option stand the results that chose it. Images appear where the dataset can be read and its "
        "licences let anybody pass them on."
    )
    if len(chosen.cases) > MOST_IN_FILE:
        parts.append(f"The files hold the first {count(MOST_IN_FILE)} cases of this choice.")
    if len(entries) < len(chosen.outcomes.runs):
        parts.append(f"Of {count(len(chosen.outcomes.runs))} results the best {count(len(entries))} are shown.")
    return " ".join(parts)


def _shown(section: Section, outcomes: Outcomes) -> list[Entry]:
    """The results of which answers are shown: all, or the best where there are more than a reader can take in."""
    name = headline_of(outcomes)
    if name is None:
        return [entry for entry in section.entries if entry.key in outcomes.runs][:MOST_RUNS]
    units = outcomes.metrics[name]
    share = dict(zip(outcomes.runs, units.top.sum(axis=1, dtype=float).tolist(), strict=True))
    entries = [entry for entry in section.entries if entry.key in share]
    best = {entry.key for entry in sorted(entries, key=lambda entry: -share[entry.key])[:MOST_RUNS]}
    return [entry for entry in entries if entry.key in best]


# ---- one case and its neighbours


def _case(outcomes: Outcomes, case_id: str) -> Ints:
    rows = np.flatnonzero((outcomes.questions["case_id"].astype(str) == case_id).to_numpy(dtype=bool))
    return np.unique(outcomes.case_of_question[rows])


def _one(board: Board, section: Section, outcomes: Outcomes, request: Request) -> str:
    case_id = str(request["id"])[:300]
    every = f'<a class="link" href="{address_of("cases", set=set_name(section))}">All cases of this set</a>'
    found = _case(outcomes, case_id)
    if not found.size:
        return f'<h2 class="finding">Case {text(case_id, 80)} is not in this set of questions.</h2><p>{every}</p>'
    case = int(found[0])
    named = [
        entry for name in ("first", "second") if (entry := find_result(section.entries, str(request.get(name) or "-")))
    ]
    entries = named or _shown(section, outcomes)
    given = given_to(outcomes, found, entries)
    drawn = article(section, outcomes, case, entries, given, datasets_of(board, section))
    shown = f' <a class="link" href="{case_address(section, case_id)}">All answers to it</a>' if named else ""
    save = files("cases")
    return (
        f'<div class="form"><span class="acts">{every}{shown}'
        f'<button type="button" class="link" data-act="link">Copy link</button>{save}</span></div>'
        f'<h2 class="finding" data-title="Case {text(case_id, 60)}">'
        f"{text(sentences.case_result(*_tally(section, outcomes, case)), 300)}</h2>{drawn}{_neighbours(section, outcomes, case)}"
    )


def _tally(section: Section, outcomes: Outcomes, case: int) -> tuple[int, int, int]:
    """Of the counted results: how many got all of a case right, how many nothing, and how many are scored on it."""
    shares = right_shares(outcomes, _counted(section, outcomes))[:, case]
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
    shared = f"<p>Cases that hold one of its images: {links}{rest}.</p>" if near.size else ""
    return f'<h3>Its neighbours</h3>{shared}<nav class="turn" aria-label="Neighbouring cases">{"".join(turn)}</nav>'


def _whole(value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        return 1


def _turn(number: int, pages: int) -> str:
    if pages == 1:
        return ""

    def button(to: int, said: str) -> str:
        return f'<button type="button" class="link" data-name="at" value="{to}">{said}</button>'

    back = button(number - 1, "Previous") if number > 1 else ""
    on = button(number + 1, "Next") if number < pages else ""
    return f'<nav class="turn" aria-label="Pages">{back}<span class="fine">Page {count(number)} of {count(pages)}</span>{on}</nav>'
