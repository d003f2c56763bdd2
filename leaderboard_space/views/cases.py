"""Draw the page Cases: the questions of a set with options, key and answers.

It shows a list that can be searched, or one case with its neighbours. A case is drawn with its
images, if they may be shown, and with the results that chose each option.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from eval_harness.records.result import Images
from leaderboard_space import sentences
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import (
    NO_ANSWER,
    AnswersByEntry,
    CaseImages,
    answered_entries,
    case_shares,
    cases_of_questions,
    cases_sharing_images,
    cases_with_label,
    cases_with_words,
    counted_keys,
    displayed_entries,
    label_choices,
    mean_case_shares,
    read_answers,
    read_case_answers,
    read_shown_images,
    sort_cases,
    trusted_datasets,
)
from leaderboard_space.data.outcomes import Ints, Outcomes
from leaderboard_space.data.sections import Entry, Section, entry_labels, find_result
from leaderboard_space.data.standings import image_arms
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

MAX_NAMED_RESULTS = 3
"""Up to this number of results, each is named beside the option that it chose. If there are more,
their number is shown, and expands to the names.
"""

MAX_RESPONSE_LENGTH = 100
"""Maximum number of characters shown of a response that names no option."""

MAX_NEIGHBOURS = 12
"""Maximum number of listed cases that share an image."""

SELECTION_KEYS = ("id", "find", "label", "branch", "facet", "model", "order")
"""Keys of an address that choose cases."""

ORDERS = (
    ("stored", "as stored"),
    ("wrong", "most often wrong first"),
    ("split", "most disputed first"),
)

DISPLAYED_FACETS = ("department", "modality", "task", "organ", "scenario", "aspect")
"""Columns of the table of questions that are shown beside a question."""

IMAGE_WORDS: dict[Images, str] = {
    "real": "its own image",
    "withheld": "no image",
    "blank": "a grey image",
    "swapped": "another case's image",
}
"""Image condition of a run -> what the model was shown, in words."""

UNREADABLE = (
    '<h2 class="finding">The cases of this set cannot be read.</h2><p class="sub">Its questions, or all answers to them, are missing '
    "from the store or damaged; the benchmark's page says which.</p>"
)

IMAGES = CaseImages()
"""Shared by the whole process, so that images fetched for one visitor serve the next."""

MEDIA_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""First bytes of an image -> its media type."""


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
    return (
        f"{note}{_form(board, chosen)}"
        f'<h2 class="finding" data-title="Cases">{sentences.case_list_headline(len(chosen.cases), chosen.is_filtered)}</h2>'
        f'<p class="sub">{_explanation(chosen, entries)}</p>'
        f"{_draw_cases(board, section, outcomes, page_cases, entries)}{_turn(at, pages)}"
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
    answer_rows: Table = []
    for case in cases.tolist():
        for _, question in outcomes.questions[outcomes.case_of_question == case].iterrows():
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
    return _draw_cases(board, section, outcomes, cases, [entry])


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
    all_answers = f' <a class="link" href="{case_address(section, case_id)}">All answers to it</a>' if chosen else ""
    return (
        f'<div class="form"><span class="acts">{all_cases}{all_answers}'
        f"{action_buttons(can_save=False)}{save_menu('cases')}</span></div>{CITE_BOX}"
        f'<h2 class="finding" data-title="Case {text(case_id, 60)}">'
        f"{text(sentences.case_headline(*_tally(section, outcomes, case)), 300)}</h2>"
        f"{_draw_cases(board, section, outcomes, cases, entries)}"
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


def draw_case(
    board: Board,
    section: Section,
    outcomes: Outcomes,
    case: int,
    entries: Sequence[Entry],
    answers_by_entry: AnswersByEntry,
    title_suffix: str = "",
) -> str:
    """Draw a case as HTML.

    Args:
        board: The board.
        section: The question set.
        outcomes: What the results answered.
        case: Number of the case.
        entries: The results.
        answers_by_entry: Their answers.
        title_suffix: HTML beside its title.
    """
    rows = outcomes.questions[outcomes.case_of_question == case]
    names, case_id = entry_labels(list(entries)), str(rows["case_id"].iloc[0])
    questions = "".join(_question(section, question, answers_by_entry, names) for _, question in rows.iterrows())
    title = f'<a href="{case_address(section, case_id)}">Case {text(case_id, 60)}</a>'
    return (
        f'<article class="case"><h3>{title} {title_suffix}</h3><div class="seen">{_pictures(board, section, case_id)}'
        f'<div class="questions">{questions}</div></div></article>'
    )


def _draw_cases(board: Board, section: Section, outcomes: Outcomes, cases: Ints, entries: Sequence[Entry]) -> str:
    """Draw some cases, given by their numbers, with the answers of some results."""
    answers = read_answers(outcomes, cases, entries)
    return "".join(draw_case(board, section, outcomes, case, entries, answers) for case in cases.tolist())


def _question(section: Section, question: pd.Series, answers_by_entry: AnswersByEntry, names: dict[str, str]) -> str:
    """Draw a question with its options, the results that chose each, and its labels.

    `names`: entry key -> name.
    """
    chosen_by: dict[int, list[str]] = defaultdict(list)
    without_choice: list[str] = []
    statuses: Counter[str] = Counter()
    for run, answers in answers_by_entry.items():
        choice, status, response = answers.get(question["question_id"], NO_ANSWER)
        # bdi: a right-to-left name must not reorder the text around it.
        name = f"<bdi>{text(names[run], 80)}</bdi>"
        for option in choice:
            chosen_by[option].append(name)
        if not choice:
            end = "…" if len(response) > MAX_RESPONSE_LENGTH else ""
            quoted = f": “{' '.join(response[:MAX_RESPONSE_LENGTH].split())}{end}”" if response.strip() else ""
            statuses[status] += 1
            without_choice.append(f"{name} <bdi>{text(f'({status}{quoted})', 200)}</bdi>")
    # Empty if the source hides its keys, even if the store knows them.
    key = set(answer_key(section, question))
    options = "".join(
        f'<li class="{"key" if at in key else ""}"><b>{chr(65 + at)}</b> <bdi>{text(option, 300)}</bdi>'
        f"{' <em>key</em>' if at in key else ''} <span>{_counted(chosen_by[at], len(answers_by_entry))}</span></li>"
        for at, option in enumerate(question["options"])
    )
    reasons = ", ".join(f"{count(n)} {status}" for status, n in statuses.items())
    named_none = (
        f'<div class="fine">Named no option: {_counted(without_choice, len(answers_by_entry), f" ({reasons})")}</div>'
    )
    hidden = "" if key else ' <span class="fine">(key hidden by the source)</span>'
    links = "".join(
        f' · <a href="{address_of("cases", set=set_name(section), label=f"{facet}:{label}")}">{text(display_label(facet, label), 80)}</a>'
        for facet, label in displayed_labels(question)
    )
    return (
        f'<div class="question"><p><bdi>{text(question["question"], 2000)}</bdi>{hidden} <span class="fine">'
        f"{text(question['question_id'], 100)}{links}</span></p><ol>{options}</ol>{named_none if statuses else ''}</div>"
    )


def _counted(names: Sequence[str], total: int, reasons: str = "") -> str:
    """Name the results that chose something, as HTML.

    If there are many, `12 of 40` is shown instead and expands to the names.
    """
    if total <= MAX_NAMED_RESULTS or not names:
        return ", ".join(names)
    return (
        f"<details><summary>{count(len(names))} of {count(total)}{text(reasons)}</summary>{', '.join(names)}</details>"
    )


def displayed_labels(question: pd.Series) -> list[tuple[str, str]]:
    """List the labels that the source gives a question, as (facet, value)."""
    pairs = [(name, str(question.get(name))) for name in DISPLAYED_FACETS if isinstance(question.get(name), str)]
    categories = question.get("categories")
    return pairs + ([("category", str(label)) for label in categories] if isinstance(categories, list) else [])


def option_letters(chosen: Sequence[int]) -> str:
    """List options by their letters: `A, C`."""
    return ", ".join(chr(65 + option) for option in chosen)


def options_in_full(question: pd.Series, chosen: Sequence[int]) -> str:
    """List options by letter and text.

    An option that the question does not have is listed by its letter alone.

    Args:
        question: A row of the table of questions.
        chosen: Positions of the options.
    """
    options = list(question["options"])
    return "; ".join(f"{chr(65 + at)} {options[at]}" if at < len(options) else chr(65 + at) for at in chosen)


def _pictures(board: Board, section: Section, case_id: str) -> str:
    """Draw the images of a case that may be shown.

    While they are fetched from the Hub, a note is drawn instead, which makes the browser ask again.
    """
    images = IMAGES.get(section, case_id, trusted_datasets(board, section))
    # Still downloading: the browser asks again for elements with data-waiting.
    if images is None:
        return '<div class="pictures" data-waiting><p class="fine">The images are being fetched.</p></div>'
    buttons = "".join(
        _picture(
            name if len(images) == 1 else f"{number} of {len(images)}, {name}, in the order of the question,",
            f"board/cases/image?{urlencode({'set': set_name(section), 'case': case_id, 'name': name})}",
        )
        for number, (name, image) in enumerate(images.items(), 1)
        if media_type(image) is not None
    )
    return f'<div class="pictures">{buttons}</div>' if buttons else ""


def _picture(title: str, address: str) -> str:
    """Draw an image as a button that enlarges it."""
    image = f'<img src="{text(address, 2000)}" alt="Image {text(title, 120)} of this case" loading="lazy">'
    return f'<button type="button" class="picture" aria-expanded="false" title="Larger or smaller">{image}</button>'


def media_type(image: bytes) -> str | None:
    """Return the media type of an image that browsers can show; None for other files."""
    return next((mime for start, mime in MEDIA_TYPES.items() if image.startswith(start)), None)


def picture(board: Board, request: Request) -> tuple[bytes, str]:
    """Return an image of a case with its media type.

    Args:
        board: The board.
        request: `set`, `case` and `name` of the image.

    Raises:
        BadInput: There is no such image, or it may not be shown.
    """
    section = chosen_section(board, request)
    # `chosen_section` falls back to another set, whose image would be the wrong one.
    if section is not None and set_name(section) == request.get("set"):
        images = IMAGES.get(section, str(request.get("case")), trusted_datasets(board, section)) or {}
        image = images.get(str(request.get("name")), b"")
        if (mime := media_type(image)) is not None:
            return image, mime
    raise BadInput("this image is not on the board. Reload the page.")
