"""Draw one case: its images if they may be shown, its questions with options and key, and the
results that chose each option."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlencode

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import (
    NO_ANSWER,
    Answer,
    CaseImages,
    DatasetSource,
    correctness_metric,
    read_case_answers,
)
from leaderboard_space.data.outcomes import Outcomes
from leaderboard_space.data.sections import Entry, Section, entry_labels
from leaderboard_space.data.tree import display_label
from leaderboard_space.html import count, text
from leaderboard_space.views.parts import (
    Request,
    address_of,
    answer_key,
    case_address,
    chosen_section,
    set_name,
)

MAX_NAMED_RESULTS = 3
"""Up to this number of results, each is named beside the option that it chose. If there are more,
their number is shown, and expands to the names.
"""
MAX_RESPONSE_LENGTH = 100
"""Maximum number of characters shown of a response that names no option."""
IMAGES = CaseImages()
"""Shared by the whole process, so that images fetched for one visitor serve the next."""
MEDIA_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
"""First bytes of an image -> its media type."""
DISPLAYED_FACETS = ("department", "modality", "task", "organ", "scenario", "aspect")
"""Columns of the table of questions that are shown beside a question."""

AnswersByEntry = dict[str, dict[str, Answer]]
"""Entry key -> question id -> answer. Results whose answers cannot be read are missing."""


def read_answers(outcomes: Outcomes, cases: np.ndarray, entries: Sequence[Entry]) -> AnswersByEntry:
    """Read the answers of results to the questions of some cases.

    Args:
        outcomes: The questions.
        cases: Numbers of the cases.
        entries: The results.
    """
    ids = outcomes.questions["question_id"][np.isin(outcomes.case_of_question, cases)].tolist()
    answers: AnswersByEntry = {}
    # Unreadable answers must not take the page down: the result is left out.
    for entry in (entry for entry in entries if entry.answers is not None):
        with suppress(BadInput):
            answers[entry.key] = read_case_answers(entry, ids)
    return answers


def draw_case(
    section: Section,
    outcomes: Outcomes,
    case: int,
    entries: Sequence[Entry],
    answers_by_entry: AnswersByEntry,
    datasets: Sequence[DatasetSource] = (),
    title_suffix: str = "",
) -> str:
    """Draw a case as HTML.

    Args:
        section: The question set.
        outcomes: What the results answered.
        case: Number of the case.
        entries: The results.
        answers_by_entry: Their answers.
        datasets: Datasets to search for its images, besides those that the results name.
        title_suffix: HTML beside its title.
    """
    rows = outcomes.questions[outcomes.case_of_question == case]
    names, case_id = entry_labels(list(entries)), str(rows["case_id"].iloc[0])
    questions = "".join(_question(section, question, answers_by_entry, names) for _, question in rows.iterrows())
    title = f'<a href="{case_address(section, case_id)}">Case {text(case_id, 60)}</a>'
    return (
        f'<article class="case"><h3>{title} {title_suffix}</h3><div class="seen">{_pictures(section, case_id, datasets)}'
        f'<div class="questions">{questions}</div></div></article>'
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


def _pictures(section: Section, case_id: str, datasets: Sequence[DatasetSource]) -> str:
    """Draw the images of a case that may be shown.

    While they are fetched from the Hub, a note is drawn instead, which makes the browser ask again.
    """
    images = IMAGES.get(section, case_id, datasets)
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


MAX_RUNS = 60
"""Maximum number of results whose answers to a case are shown."""


def answered_entries(section: Section, outcomes: Outcomes) -> list[Entry]:
    """List the results whose answers are known."""
    return [entry for entry in section.entries if entry.key in outcomes.row_of]


def counted_keys(section: Section, outcomes: Outcomes) -> tuple[str, ...]:
    """List the keys of the results by which a case counts as often wrong or as disputed.

    These are the results that are neither baselines nor withdrawn, or all results if there are
    none.
    """
    # Baselines (chance, oracle) say nothing about how hard a case is.
    entries = [entry for entry in answered_entries(section, outcomes) if not entry.is_reference]
    return tuple(entry.key for entry in entries if entry.provenance.withdrawal is None) or tuple(outcomes.runs)


def displayed_entries(section: Section, outcomes: Outcomes) -> list[Entry]:
    """List the results whose answers are shown: all, or the best `MAX_RUNS`."""
    name, entries = correctness_metric(outcomes), answered_entries(section, outcomes)
    if name is None:
        return entries[:MAX_RUNS]
    shares = dict(zip(outcomes.runs, outcomes.metrics[name].shares().tolist(), strict=True))
    best = sorted(entries, key=lambda entry: -np.nan_to_num(shares[entry.key]))[:MAX_RUNS]
    return [entry for entry in entries if entry in best]


def trusted_datasets(board: Board, section: Section) -> list[DatasetSource]:
    """List the datasets that the board's owner trusts and that contain a section's questions.

    Their images may be shown, too.

    Args:
        board: The board.
        section: The question set.
    """
    return [
        (str(split.benchmark.repo), split.benchmark.revision)
        for split in board.trusted.splits
        if split.benchmark.fingerprint == section.fingerprint and split.benchmark.repo
    ]
