"""Draw the page Cases: the questions of a set with options, key and answers.

It shows a list that can be searched, or one case with its neighbours.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from dataset_builders.errors import BadInput
from eval_harness.records.result import Images
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import (
    NO_ANSWER,
    case_shares,
    cases_of_questions,
    cases_sharing_images,
    cases_with_label,
    cases_with_words,
    label_choices,
    mean_case_shares,
    read_case_answers,
    read_shown_images,
    sort_cases,
)
from leaderboard_space.data.outcomes import Ints, Outcomes
from leaderboard_space.data.ranks.sights import image_arms
from leaderboard_space.data.sections import Entry, Section, entry_labels, find_result
from leaderboard_space.data.tree import (
    Tree,
    TreePath,
    branch_name,
    display_label,
    facet_title,
    selection_group_names,
)
from leaderboard_space.export import Table, name_set, set_citation, table_file
from leaderboard_space.html import count, options, plural, prose, text
from leaderboard_space.query import parse_selection
from leaderboard_space.views.case import (
    MAX_RESPONSE_LENGTH,
    answered_entries,
    counted_keys,
    displayed_entries,
    displayed_labels,
    draw_case,
    option_letters,
    options_in_full,
    read_answers,
    trusted_datasets,
)
from leaderboard_space.views.parts import (
    CITE_BOX,
    Request,
    action_buttons,
    address_of,
    answer_key,
    benchmark_address,
    case_address,
    chosen_section,
    measured_sections,
    name_input,
    no_answers_page,
    result_input,
    save_menu,
    set_name,
    set_select,
    unknown_name_note,
)
from leaderboard_space.views.tables.table import html_columns, scrollable, table

PER_PAGE = 8
"""Number of cases on a page of the list."""
MAX_SAVED_CASES = 500
"""Maximum number of cases in a saved file."""
SELECTION_KEYS = ("id", "find", "label", "branch", "facet", "model", "order")
"""Keys of an address that choose cases."""
ORDERS = (
    ("stored", "as stored"),
    ("wrong", "most often wrong first"),
    ("split", "most disputed first"),
)
UNREADABLE = (
    '<h2 class="finding">The cases of this set cannot be read.</h2><p class="sub">Its questions, or all answers to them, are missing '
    "from the store or damaged; the benchmark's page says which.</p>"
)


@dataclass(frozen=True)
class _CaseList:
    """The list of cases that a request chooses.

    Args:
        section: The question set.
        outcomes: What the results answered.
        cases: Numbers of the cases, in order.
        query: Words that are searched for.
        order: Key in `ORDERS`.
        label: Text of the label field.
        by: The result whose mistakes are listed; None for all cases.
        is_filtered: True if not all cases are listed.
        ignored: Names in the request that match nothing, a sentence each.
        selection: The selected branches of the tree; every case lies on them.
    """

    section: Section
    outcomes: Outcomes
    cases: Ints
    query: str
    order: str
    label: str
    by: Entry | None
    is_filtered: bool
    ignored: tuple[str, ...]
    selection: tuple[TreePath, ...] = ()


def page(board: Board, request: Request) -> str:
    """Draw the page as HTML.

    Args:
        board: The board.
        request: `set`, `find` (words), `label` (facet:value), `branch`, `facet`, `model` (a
            result), `order`, `at` (page number, from 1); or `id`, one case, with `first` and
            `second`, the results whose answers are shown.
    """
    section = chosen_section(board, request)
    if section is None:
        return no_answers_page()
    outcomes, tree = board.outcomes(section)
    note = unknown_name_note("Set of questions", request.get("set"), set_name(section))
    if outcomes is None:
        return f'{note}<div class="form">{set_select(measured_sections(board), section)}</div>{UNREADABLE}'
    if request.get("id"):
        return note + _one(board, section, outcomes, request)
    chosen = _chosen(section, outcomes, tree, request)
    pages = max(-(-len(chosen.cases) // PER_PAGE), 1)
    number = str(request.get("at") or "")
    # A page number from an address may be anything.
    at = min(max(int(number) if number.isdecimal() and len(number) < 9 else 1, 1), pages)
    page_cases = chosen.cases[(at - 1) * PER_PAGE : at * PER_PAGE]
    entries = displayed_entries(section, outcomes)
    # The result whose mistakes are listed is shown even if it is not among the best.
    if chosen.by is not None and chosen.by not in entries:
        entries = [*entries, chosen.by]
    answers, datasets = (
        read_answers(outcomes, page_cases, entries),
        trusted_datasets(board, section),
    )
    return (
        f"{note}{_form(board, chosen)}"
        f'<h2 class="finding" data-title="Cases">{sentences.case_list_headline(len(chosen.cases), chosen.is_filtered)}</h2>'
        f'<p class="sub">{_explanation(chosen, entries)}</p>'
        f"{''.join(draw_case(section, outcomes, case, entries, answers, datasets) for case in page_cases.tolist())}{_turn(at, pages)}"
    )


def file(board: Board, request: Request) -> dict[str, str]:
    """Return the chosen cases as a file, one row per question and result; or the page's citation.

    Args:
        board: The board.
        request: As for `page`; `as`: csv, json or cite.

    Returns:
        `name`, `text` and `type` of the file.

    Raises:
        BadInput: No questions are known.
    """
    section = chosen_section(board, request)
    outcomes, tree = board.outcomes(section) if section else (None, None)
    if section is None or outcomes is None or tree is None:
        raise BadInput("the cases of this set cannot be read.")
    entries = displayed_entries(section, outcomes)
    if str(request.get("as")) == "cite":
        chosen = "; ".join(f"{key} {str(request[key])[:200]}" for key in SELECTION_KEYS if request.get(key))
        note = f"Selection: {chosen or 'everything'}."
        return set_citation(section, f"Cases of {name_set(section)}", note, entries, request)
    is_one = bool(request.get("id"))
    cases = find_case(outcomes, str(request["id"])) if is_one else _chosen(section, outcomes, tree, request).cases
    cases = cases[:MAX_SAVED_CASES]
    answers_by_entry = read_answers(outcomes, cases, entries)
    order = {case: position for position, case in enumerate(cases.tolist())}
    rows = np.flatnonzero(np.isin(outcomes.case_of_question, list(order)))
    # `isin` loses the order of the list.
    rows = rows[np.argsort([order[case] for case in outcomes.case_of_question[rows].tolist()], kind="stable")]
    answer_rows: Table = []
    for _, question in outcomes.questions.iloc[rows].iterrows():
        question_columns = {
            "case_id": question["case_id"],
            "question_id": question["question_id"],
            "question": question["question"],
            "options": " | ".join(f"{chr(65 + at)} {option}" for at, option in enumerate(question["options"])),
            "key": option_letters(answer_key(section, question)) or None,
            "labels": "; ".join(display_label(*label) for label in displayed_labels(question)),
        }
        for entry in (entry for entry in entries if entry.key in answers_by_entry):
            choice, status, response = answers_by_entry[entry.key].get(question["question_id"], NO_ANSWER)
            answer_rows.append(
                {
                    **question_columns,
                    "model": entry.result.model.name,
                    "run": entry.key,
                    "chosen": option_letters(choice),
                    "status": status,
                    "response": response,
                }
            )
    return table_file(answer_rows, f"cases-{section.benchmark}-{section.key}", str(request.get("as")))


def failed_cases(
    board: Board,
    section: Section,
    outcomes: Outcomes,
    entry: Entry,
    limit: int,
    metric: str | None = None,
    label: tuple[str, str] | None = None,
) -> str:
    """Draw the first cases that a result did not score in full.

    Completely wrong cases come first; among equally wrong ones, those that most other results got
    right.

    Args:
        board: The board.
        section: The question set.
        outcomes: What the results answered.
        entry: The result.
        limit: Maximum number of cases.
        metric: The score; None for the headline metric.
        label: Facet and value that the cases must have; None for all cases.

    Returns:
        The cases as HTML; "" if there is none.
    """
    other_keys = tuple(key for key in counted_keys(section, outcomes) if key != entry.key)
    (shares,) = case_shares(outcomes, [entry.key], metric)
    cases = np.flatnonzero(shares < 1 if label is None else (shares < 1) & cases_with_label(outcomes, *label))
    if other_keys:
        cases = sort_cases(cases, 1 - mean_case_shares(outcomes, other_keys), "wrong")
    # Stable: within equal shares, the order by the other results is kept.
    cases = cases[np.argsort(shares[cases], kind="stable")][:limit]
    answers, datasets = read_answers(outcomes, cases, [entry]), trusted_datasets(board, section)
    return "".join(draw_case(section, outcomes, case, [entry], answers, datasets) for case in cases.tolist())


def _chosen(section: Section, outcomes: Outcomes, tree: Tree, request: Request) -> _CaseList:
    """Select the cases that a request chooses, in the requested order."""
    query, order = str(request.get("find") or "")[:200], str(request.get("order"))
    order = order if order in dict(ORDERS) else "stored"
    label_text, model = (str(request.get(name) or "").strip() for name in ("label", "model"))
    label = _find_label(outcomes, label_text)
    by = find_result(answered_entries(section, outcomes), model) if model else None
    paths = parse_selection(request)
    selection = tuple(path for path in paths if path in tree.rows)
    ignored = [f"This set has no {branch_name(path)!r}; it is ignored." for path in paths if path not in selection]
    if label_text and label is None:
        ignored.append(f"This set has no label {label_text!r}; the label is ignored.")
    if model and by is None:
        ignored.append(f"No result named {model!r} has answers here; the name is ignored.")

    mask = cases_with_words(outcomes, query)
    if (selected := tree.mask(selection)) is not None:
        mask &= cases_of_questions(outcomes, selected)
    if label is not None:
        mask &= cases_with_label(outcomes, *label)
    if by is not None:
        mask &= case_shares(outcomes, [by.key])[0] < 1
    cases = sort_cases(np.flatnonzero(mask), mean_case_shares(outcomes, counted_keys(section, outcomes)), order)
    is_filtered = bool(query.strip() or label or by or selection)
    name = _label_name(*label) if label else label_text
    return _CaseList(section, outcomes, cases, query, order, name, by, is_filtered, tuple(ignored), selection)


def _label_name(facet: str, label: str) -> str:
    """Return a label as it is shown and typed."""
    return f"{facet_title(facet)}: {display_label(facet, label)}"


def _find_label(outcomes: Outcomes, name: str) -> tuple[str, str] | None:
    """Find the (facet, value) that a text names; None if there is none.

    The text has the form facet:value, as in addresses, or the label as it is shown.
    """
    # Addresses have facet:value; the field shows "Facet: value".
    facet, _, label = name.partition(":")
    if label and label in outcomes.rows_by_label(facet):
        return facet, label
    by_name = {_label_name(facet, label).casefold(): (facet, label) for facet, label, _ in label_choices(outcomes)}
    return by_name.get(name.casefold())


def _form(board: Board, chosen: _CaseList) -> str:
    """Draw the fields that choose cases."""
    section, outcomes = chosen.section, chosen.outcomes
    entries = answered_entries(section, outcomes)
    offered = [(_label_name(facet, label), plural(size, "case")) for facet, label, size in label_choices(outcomes)]
    by_label = name_input("Label", "label", chosen.label, offered, "any label") if offered else ""
    model = entry_labels(entries)[chosen.by.key] if chosen.by else ""
    return (
        f'<div class="form">{set_select(measured_sections(board), section)}'
        f'<label>Search <input data-name="find" type="search" value="{text(chosen.query, 200)}" placeholder="words or id"></label>'
        f"{by_label}{result_input('Wrong by', 'model', model, entries, 'any result')}"
        f'<label>Order <select data-name="order">{options(list(ORDERS), chosen.order)}</select></label>'
        f'<span class="acts">{action_buttons(can_save=False)}{save_menu("cases")}</span></div>{CITE_BOX}'
    )


def _explanation(chosen: _CaseList, entries: Sequence[Entry]) -> str:
    """Describe what is listed, and what is shown of each case, in sentences (HTML).

    `entries` are the results whose answers are shown.
    """
    only, by = "", ""
    if chosen.selection:
        only = prose(f"Only {' and '.join(selection_group_names(chosen.selection))}.", 600)
        only += f' <a href="{benchmark_address(chosen.section, None, chosen.selection)}">Change this selection</a>.'
    if chosen.by is not None:
        name = entry_labels(answered_entries(chosen.section, chosen.outcomes))[chosen.by.key]
        by = f"In each, {text(name, 120)} did not score in full."
    has_samples = any((entry.result.method.samples or 1) > 1 for entry in entries)
    runs = len(chosen.outcomes.runs)
    parts = (
        *(text(line, 300) for line in chosen.ignored),
        only,
        by,
        "The key is marked; each option is followed by the results that chose it. Images appear where the dataset can be read and its "
        "licences permit redistribution.",
        sentences.FIRST_SAMPLE_NOTE if has_samples else "",
        f"The saved files contain the first {count(MAX_SAVED_CASES)} cases of this selection."
        if len(chosen.cases) > MAX_SAVED_CASES
        else "",
        f"Of {count(runs)} results the best {count(len(entries))} are shown." if len(entries) < runs else "",
    )
    return " ".join(filter(None, parts))


def _turn(at: int, pages: int) -> str:
    """Draw the buttons that turn the pages of the list; "" for a single page."""

    def button(number: int, label: str) -> str:
        return f'<button type="button" class="link" data-name="at" value="{number}">{label}</button>'

    previous = button(at - 1, "Previous") if at > 1 else ""
    following = button(at + 1, "Next") if at < pages else ""
    place = f'<span class="fine">Page {count(at)} of {count(pages)}</span>'
    navigation = f'<nav class="turn" aria-label="Pages of cases">{previous}{place}{following}</nav>'
    return navigation if pages > 1 else ""


MAX_NEIGHBOURS = 12
"""Maximum number of listed cases that share an image."""
IMAGE_WORDS: dict[Images, str] = {
    "real": "its own image",
    "withheld": "no image",
    "blank": "a grey image",
    "swapped": "another case's image",
}
"""Image condition of a run -> what the model was shown, in words."""


def find_case(outcomes: Outcomes, case_id: str) -> Ints:
    """Return the number of the case with an id, as an array of one; empty if there is none.

    Args:
        outcomes: The questions.
        case_id: Id of the case.
    """
    rows = np.flatnonzero((outcomes.questions["case_id"].astype(str) == case_id).to_numpy(dtype=bool))
    return np.unique(outcomes.case_of_question[rows])


def _one(board: Board, section: Section, outcomes: Outcomes, request: Request) -> str:
    """Draw one case with its answers, the answers without the right image, and its neighbours.

    Args:
        board: The board.
        section: The question set.
        outcomes: What the results answered.
        request: `id` of the case; `first`, `second`: the only results whose answers are shown.
    """
    case_id = str(request["id"])[:300]
    all_cases = f'<a class="link" href="{address_of("cases", set=set_name(section))}">All cases of this set</a>'
    cases = find_case(outcomes, case_id)
    if not cases.size:
        return f'<h2 class="finding">Case {text(case_id, 80)} is not in this set of questions.</h2><p>{all_cases}</p>'
    case = int(cases[0])
    # "-" matches no result; an empty name would.
    matches = [find_result(section.entries, str(request.get(slot) or "-")) for slot in ("first", "second")]
    chosen = [entry for entry in matches if entry]
    entries = chosen or displayed_entries(section, outcomes)
    answers = read_answers(outcomes, cases, entries)
    all_answers = f' <a class="link" href="{case_address(section, case_id)}">All answers to it</a>' if chosen else ""
    return (
        f'<div class="form"><span class="acts">{all_cases}{all_answers}'
        f"{action_buttons(can_save=False)}{save_menu('cases')}</span></div>{CITE_BOX}"
        f'<h2 class="finding" data-title="Case {text(case_id, 60)}">'
        f"{text(sentences.case_headline(*_tally(section, outcomes, case)), 300)}</h2>"
        f"{draw_case(section, outcomes, case, entries, answers, trusted_datasets(board, section))}"
        f"{_without_the_image(section, outcomes, case, entries)}{_neighbours(section, outcomes, case)}"
    )


def _without_the_image(section: Section, outcomes: Outcomes, case: int, entries: Sequence[Entry]) -> str:
    """Draw models' answers to a case without the right image, and what was shown instead."""
    questions = outcomes.questions[outcomes.case_of_question == case]
    ids = questions["question_id"].tolist()
    rows: list[list[str]] = []
    arms = [(entry.result.model.name, *arm) for entry in entries for arm in image_arms(section, entry).items()]
    for name, image, arm in arms:
        # An arm whose files are damaged is left out.
        with suppress(BadInput):
            answers, images = read_case_answers(arm, ids), read_shown_images(arm, ids)
            for _, question in questions.iterrows():
                question_id = question["question_id"]
                choice, status, response = answers.get(question_id, NO_ANSWER)
                image_shown = (
                    f"image {', '.join(images[question_id])}" if images.get(question_id) else IMAGE_WORDS[image]
                )
                answer = options_in_full(question, choice) if choice else f"({status}) {response[:MAX_RESPONSE_LENGTH]}"
                rows.append([f"<bdi>{text(cell, 200)}</bdi>" for cell in (name, question_id, image_shown, answer)])

    columns = html_columns(("Model", "Question", "Shown", "Answer"), name_at=-1)
    answers_table = scrollable(table("", "Without the right image", columns, [("", rows)], "plain left"))
    return f"<h3>Without the right image</h3>{answers_table}" if rows else ""


def _tally(section: Section, outcomes: Outcomes, case: int) -> tuple[int, int, int]:
    """Count the results that got all of a case right, got nothing right, and are scored on it."""
    shares = case_shares(outcomes, counted_keys(section, outcomes))[:, case]
    # NaN: the result was not scored on this case.
    scored = shares[np.isfinite(shares)]
    return int((scored == 1).sum()), int((scored == 0).sum()), int(scored.size)


def _neighbours(section: Section, outcomes: Outcomes, case: int) -> str:
    """Draw links to the cases before and after a case, and to those that share an image with it."""
    ids = outcomes.questions.drop_duplicates("case_id")["case_id"].astype(str).tolist()

    def link(at: int, label: str) -> str:
        return f'<a href="{case_address(section, ids[at])}">{text(f"{label} {ids[at]}", 80)}</a>'

    previous = link(case - 1, "Before: case") if case > 0 else ""
    following = link(case + 1, "Next: case") if case + 1 < len(ids) else ""
    near = cases_sharing_images(outcomes, case)
    hidden_note = f" and {count(near.size - MAX_NEIGHBOURS)} more" if near.size > MAX_NEIGHBOURS else ""
    links = ", ".join(link(at, "case") for at in near[:MAX_NEIGHBOURS].tolist())
    shared = f"<p>Cases that share an image with it: {links}{hidden_note}.</p>" if near.size else ""
    return (
        f'<h3>Its neighbours</h3>{shared}<nav class="turn" aria-label="Neighbouring cases">{previous}{following}</nav>'
    )
