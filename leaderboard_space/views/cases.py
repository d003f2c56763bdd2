"""Cases: the questions of a set with options, key, and who answered what: a list that can be searched and filtered, and one case with
its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dataset_builders.errors import BadInput
from eval_harness.records.result import Images
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import (
    NO_ANSWER,
    answers_to,
    cases_of,
    label_choices,
    labelled,
    matching,
    mean_right,
    ordered,
    right_shares,
    sharing_images,
    shown_to,
)
from leaderboard_space.data.model_names import find_result, labels
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.ranks.sight import arms_of
from leaderboard_space.data.scoring import Ints
from leaderboard_space.data.store.sections import Entry, Section
from leaderboard_space.data.tree import FACET_LABEL, Tree, TreePath, branch_name, selection_name, shown_label
from leaderboard_space.export import Table, as_file, cited
from leaderboard_space.html import count, options, plural, prose, text
from leaderboard_space.query import selection_of
from leaderboard_space.views.case import (
    MOST_SAID,
    answered_of,
    article,
    counted_of,
    datasets_of,
    given_to,
    in_full,
    labels_of,
    letters,
    shown_of,
)
from leaderboard_space.views.parts import (
    CITE_BOX,
    Request,
    acts,
    address_of,
    benchmark_address,
    case_address,
    chosen_section,
    files,
    key_of,
    name_input,
    no_answers,
    not_known,
    result_input,
    section_select,
    set_name,
)

PER_PAGE = 8
MOST_IN_FILE = 500
SELECTS = ("id", "find", "label", "branch", "facet", "model", "order")
"""What a request chooses cases by."""
ORDERS = (("stored", "as stored"), ("wrong", "most often wrong first"), ("split", "most disputed first"))
UNREADABLE = (
    '<h2 class="finding">The cases of this set cannot be read.</h2><p class="sub">Its questions, or all answers to them, are missing '
    "from the store or damaged; the benchmark's page says which.</p>"
)


@dataclass(frozen=True)
class _List:
    """A list of cases as a request chooses it. `by`: the result whose mistakes alone are listed, where one is named; `ignored`: what is
    named and not there, a sentence each."""

    section: Section
    outcomes: Outcomes
    cases: Ints
    wanted: str
    order: str
    label: str
    by: Entry | None
    is_part: bool
    ignored: tuple[str, ...]
    selection: tuple[TreePath, ...] = ()


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `find` (words), `label` (facet:value), `model` (a result), `order`, `at` (the page, from
    1); `id`: one case alone, then `first`, `second`: the results whose answers are shown."""
    found = chosen_section(board, request)
    if found is None:
        return no_answers()
    key, section = found
    outcomes, tree = board.outcomes(section)
    note = not_known("Set of questions", request.get("set"), key)
    if outcomes is None:
        return f'{note}<div class="form">{section_select(board, key)}</div>{UNREADABLE}'
    if request.get("id"):
        return note + _one(board, section, outcomes, request)
    chosen = _chosen(section, outcomes, tree, request)
    pages = max(-(-len(chosen.cases) // PER_PAGE), 1)
    said = str(request.get("at") or "")
    at = min(max(int(said) if said.isdecimal() and len(said) < 9 else 1, 1), pages)
    shown = chosen.cases[(at - 1) * PER_PAGE : at * PER_PAGE]
    entries = shown_of(section, outcomes)
    if chosen.by is not None and chosen.by not in entries:
        entries = [*entries, chosen.by]
    given = given_to(outcomes, shown, entries)
    body = "".join(
        article(section, outcomes, case, entries, given, datasets_of(board, section)) for case in shown.tolist()
    )
    return (
        f"{note}{_form(board, key, chosen)}"
        f'<h2 class="finding" data-title="Cases">{sentences.cases_found(len(chosen.cases), chosen.is_part)}</h2>'
        f'<p class="sub">{_explained(chosen, entries)}</p>{body}{_turn(at, pages)}'
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """The chosen cases as a file (`name`, `text`, `type`), a row per question and result. `as`: csv or json, or cite:
    how to cite the page.

    Raises BadInput if no questions are known.
    """
    found = chosen_section(board, request)
    outcomes, tree = board.outcomes(found[1]) if found else (None, None)
    if found is None or outcomes is None or tree is None:
        raise BadInput("the cases of this set cannot be read.")
    section = found[1]
    cases = (
        case_named(outcomes, str(request["id"]))
        if request.get("id")
        else _chosen(section, outcomes, tree, request).cases
    )
    entries = shown_of(section, outcomes)
    if str(request.get("as")) == "cite":
        title = f"Cases of {section.benchmark} ({section.split}), {section.title().lower()}"
        questions = f" Questions: fingerprint {section.fingerprint}." if section.fingerprint else ""
        chosen = "; ".join(f"{key} {str(request[key])[:200]}" for key in SELECTS if request.get(key))
        return cited(title, f"Selection: {chosen or 'everything'}.{questions}", entries, request)
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
            "labels": "; ".join(shown_label(*one) for one in labels_of(question)),
        }
        for entry in entries:
            if entry.key in given:
                choice, status, said = given[entry.key].get(question["question_id"], NO_ANSWER)
                answered = {"chosen": letters(choice), "status": status, "response": said}
                table.append({**asked, "model": entry.result.model.name, "run": entry.key, **answered})
    return as_file(table, f"cases-{section.benchmark}-{section.key}", str(request.get("as")))


def failures(
    board: Board,
    section: Section,
    outcomes: Outcomes,
    entry: Entry,
    most: int,
    metric: str | None = None,
    label: tuple[str, str] | None = None,
) -> str:
    """The first cases (with a label) that a result did not score in full, by a score or the headline: those that it got wrong altogether
    first, of these those that most others got right; nothing where there is none."""
    others = [key for key in counted_of(section, outcomes) if key != entry.key]
    (mine,) = right_shares(outcomes, [entry.key], metric)
    cases = np.flatnonzero(mine < 1 if label is None else (mine < 1) & labelled(outcomes, *label))
    if others:
        cases = ordered(cases, 1 - mean_right(outcomes, others), "wrong")
    cases = cases[np.argsort(mine[cases], kind="stable")]
    given = given_to(outcomes, cases[:most], [entry])
    datasets = datasets_of(board, section)
    return "".join(article(section, outcomes, case, [entry], given, datasets) for case in cases[:most].tolist())


def _chosen(section: Section, outcomes: Outcomes, tree: Tree, request: Request) -> _List:
    """The cases that a request chooses, in its order."""
    wanted = str(request.get("find") or "")[:200]
    order = str(request.get("order")) if str(request.get("order")) in dict(ORDERS) else "stored"
    label, model = (str(request.get(name) or "").strip() for name in ("label", "model"))
    named, by = _label_meant(outcomes, label), find_result(answered_of(section, outcomes), model) if model else None
    mask, mean = matching(outcomes, wanted), mean_right(outcomes, counted_of(section, outcomes))
    paths = selection_of(request)
    selection = tuple(path for path in paths if path in tree.rows)
    ignored = [f"This set has no {branch_name(path)!r}; it is ignored." for path in paths if path not in selection]
    if (selected := tree.mask(selection)) is not None:
        mask &= cases_of(outcomes, selected)
    if named is not None:
        mask &= labelled(outcomes, *named)
    elif label:
        ignored.append(f"This set has no label {label!r}; the label is ignored.")
    if by is not None:
        mask &= right_shares(outcomes, [by.key])[0] < 1
    elif model:
        ignored.append(f"No result named {model!r} has answers here; the name is ignored.")
    cases = ordered(np.flatnonzero(mask), mean, order)
    is_part = bool(wanted.strip() or named or by or selection)
    shown = label if named is None else _label_name(*named)
    return _List(section, outcomes, cases, wanted, order, shown, by, is_part, tuple(ignored), selection)


def _label_name(facet: str, label: str) -> str:
    """A label as it is shown and typed."""
    return f"{FACET_LABEL.get(facet, facet)}: {shown_label(facet, label)}"


def _label_meant(outcomes: Outcomes, said: str) -> tuple[str, str] | None:
    """The (facet, label) that is meant: as facet:label, as addresses have it, or as it is shown; None for none."""
    facet, _, label = said.partition(":")
    if label and label in outcomes.rows_by_label(facet):
        return facet, label
    known = {_label_name(facet, label).casefold(): (facet, label) for facet, label, _ in label_choices(outcomes)}
    return known.get(said.casefold())


def _form(board: Board, key: str, chosen: _List) -> str:
    section, outcomes = chosen.section, chosen.outcomes
    entries = answered_of(section, outcomes)
    offered = [(_label_name(facet, label), plural(size, "case")) for facet, label, size in label_choices(outcomes)]
    by_label = name_input("Label", "label", chosen.label, offered, "any label") if offered else ""
    model = labels(entries)[chosen.by.key] if chosen.by else ""
    return (
        f'<div class="form">{section_select(board, key)}'
        f'<label>Search <input data-name="find" type="search" value="{text(chosen.wanted, 200)}" placeholder="words or id"></label>'
        f"{by_label}{result_input('Wrong by', 'model', model, entries, 'any result')}"
        f'<label>Order <select data-name="order">{options(list(ORDERS), chosen.order)}</select></label>'
        f'<span class="acts">{acts(tables=False)}{files("cases")}</span></div>{CITE_BOX}'
    )


def _explained(chosen: _List, entries: Sequence[Entry]) -> str:
    """What is listed, and what is shown of it."""
    parts = [text(line, 300) for line in chosen.ignored]
    if chosen.selection:
        address = benchmark_address(chosen.section, None, chosen.selection)
        only = prose(f"Only {' and '.join(selection_name(chosen.selection))}.", 600)
        parts.append(f'{only} <a href="{address}">Change this selection</a>.')
    if chosen.by is not None:
        named = labels(answered_of(chosen.section, chosen.outcomes))[chosen.by.key]
        parts.append(f"In each, {text(named, 120)} did not score in full.")
    parts.append(
        "The key is marked; each option is followed by the results that chose it. Images appear where the dataset can be read and its "
        "licences permit redistribution."
    )
    if any((entry.result.method.samples or 1) > 1 for entry in entries):
        parts.append(sentences.FIRST_SAMPLE)
    if len(chosen.cases) > MOST_IN_FILE:
        parts.append(f"The saved files contain the first {count(MOST_IN_FILE)} cases of this selection.")
    if len(entries) < len(chosen.outcomes.runs):
        parts.append(f"Of {count(len(chosen.outcomes.runs))} results the best {count(len(entries))} are shown.")
    return " ".join(parts)


def _turn(number: int, pages: int) -> str:
    if pages == 1:
        return ""

    def button(to: int, said: str) -> str:
        return f'<button type="button" class="link" data-name="at" value="{to}">{said}</button>'

    back = button(number - 1, "Previous") if number > 1 else ""
    on = button(number + 1, "Next") if number < pages else ""
    return f'<nav class="turn" aria-label="Pages of cases">{back}<span class="fine">Page {count(number)} of {count(pages)}</span>{on}</nav>'


MOST_NEIGHBOURS = 12
WITHOUT: dict[Images, str] = {
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


def _one(board: Board, section: Section, outcomes: Outcomes, request: Request) -> str:
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
    drawn = article(section, outcomes, case, entries, given, datasets_of(board, section))
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
                choice, status, said = answers.get(name, NO_ANSWER)
                seen = f"image {', '.join(shown[name])}" if shown.get(name) else WITHOUT[image]
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
    shares = right_shares(outcomes, counted_of(section, outcomes))[:, case]
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
