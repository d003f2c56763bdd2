"""Draw the small parts that several pages share: addresses, buttons, form fields, notes, and where
a result comes from.
"""

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from eval_harness.records.result import Result
from eval_harness.store.contents import Provenance
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, method_name
from leaderboard_space.data.board import Board
from leaderboard_space.data.sections import Entry, Section, entry_labels, entry_source, judge_label, ranking_group
from leaderboard_space.data.tree import PATH_SEPARATOR, TreePath
from leaderboard_space.html import MAX_CHOICE_LENGTH, count, number, options, plural, prose, text

Request = Mapping[str, Any]
"""What the browser asks for: keys and values of an address."""

MAX_ID_LENGTH = 300
"""Maximum number of characters of an id in an address."""


def address_of(page: str, id: str = "", /, **parameters: str | Sequence[str] | None) -> str:
    """Return a link within the board, escaped for an attribute.

    Args:
        page: Name of the page.
        id: What the page is about.
        parameters: Keys and values; a key with several values is repeated, one without any is left
            out.

    >>> address_of("model", "A & B"), address_of("compare", result=["a", "b"], set=None)
    ('#/model/A%20%26%20B', '#/compare?result=a&amp;result=b')
    """
    # A key may have one value or several.
    values = {key: [value] if isinstance(value, str) else value or () for key, value in parameters.items()}
    pairs = [(key, value) for key, of_key in values.items() for value in of_key if value]
    path = f"#/{page}/{quote(id, safe='')}" if id else f"#/{page}"
    return text(f"{path}?{urlencode(pairs, quote_via=quote, safe='/')}" if pairs else path, 8000)


def set_name(section: Section) -> str:
    """Return the name of a question set in addresses of the pages Compare and Cases."""
    return f"{section.family}/{section.key}"


def set_title(section: Section) -> str:
    """Return the title of a question set for lists that include other benchmarks."""
    return f"{BENCHMARK_LABELS[section.family]}: {section.title()}, {section.split}"


def benchmark_address(
    section: Section,
    metric: str | None = None,
    selection: Sequence[TreePath] = (),
    every: bool = False,
) -> str:
    """Return the address of a question set's leaderboard.

    Args:
        section: The question set.
        metric: The score; None for the headline metric.
        selection: The selected branches.
        every: Show all rows of a long table.
    """
    branches = selection_address(selection)
    return address_of("b", section.family, s=section.key, m=metric, all="yes" if every else None, **branches)


def selection_address(selection: Sequence[TreePath]) -> dict[str, list[str]]:
    """Return a selection as parameters of an address.

    A label is a `facet`; a path below a label is a `branch`.
    """
    parameters: dict[str, list[str]] = {}
    for path in selection:
        key = "branch" if len(path) > 2 else "facet"
        parameters.setdefault(key, []).append(f"{path[0]}:{PATH_SEPARATOR.join(path[1:])}")
    return parameters


def compare_address(section: Section, metric: str | None, branches: Sequence[TreePath] = (), **results: str) -> str:
    """Return the address of a comparison of results.

    Args:
        section: The question set.
        metric: The score; None for the headline metric.
        branches: The selected branches.
        results: Result by slot (`first`, `second` ...).
    """
    return address_of("compare", set=set_name(section), metric=metric, **selection_address(branches), **results)


def model_address(name: str) -> str:
    """Return the address of a model's page; for an overlong name, that of the list of models."""
    return address_of("model", name if len(name) <= MAX_ID_LENGTH else "")


def case_address(section: Section, case_id: str) -> str:
    """Return the address of one case of a question set."""
    return address_of("cases", case_id, set=set_name(section))


MODEL_KIND_TITLES = {
    "proprietary": "proprietary",
    "open": "open weights",
    "medical": "medical",
    "baseline": "baseline",
    "human": "person",
}
"""Kind of model -> its words in the legend; a result without a kind is "kind not stated"."""


def links_row(label: str, title: str, links: str) -> str:
    """Draw a row of links after a title.

    Args:
        label: What screen readers announce.
        title: The title.
        links: The links (HTML).
    """
    return f'<div class="topics" role="group" aria-label="{text(label)}"><span>{text(title)}</span><div>{links}</div></div>'


def explanation_button(content: str, explanation: str, name: str, kind: str = "") -> str:
    """Draw a button that opens an explanation, by mouse, touch or keyboard.

    Args:
        content: HTML of the button.
        explanation: The text that it opens.
        name: Makes its id unique on the page.
        kind: CSS classes of the button.
    """
    # An id must not contain spaces; names do.
    element_id = f"why-{zlib.crc32(name.encode()):08x}"
    return (
        f'<button type="button" class="ask-why {kind}" popovertarget="{element_id}">{content}</button>'
        f'<span class="why" popover id="{element_id}">{text(explanation, 600)}</span>'
    )


MAX_FIRST_RESULTS, MAX_FIRST_MODELS = 60, 20
"""Number of rows of a long table that are drawn at first: results, and models. Rows of models are
larger, with a chart in every column."""


def all_rows_button(n_drawn: int, n_total: int, row_noun: str = "result") -> str:
    """Draw the button that shows all rows of a table.

    Sorting the table shows them, too (`assets/table.js`).

    Args:
        n_drawn: Number of rows that are drawn.
        n_total: Number of rows.
        row_noun: What a row is.
    """
    button = f'<button type="button" class="link" data-name="all" value="yes">All {plural(n_total, row_noun)}</button>'
    return f'<p class="turn" data-part>{button}</p>' if n_drawn < n_total else ""


def save_menu(table: str) -> str:
    """Draw the menu that saves a table."""
    buttons = "".join(
        f'<button type="button" class="link" data-act="{form}" data-of="{table}">{form.upper()}</button>'
        for form in ("csv", "json")
    )
    return f'<details class="save" data-keep="save-{table}"><summary>Save</summary><span>{buttons}</span></details>'


CITE_BOX = '<div class="cite" hidden></div>'
"""Where the citation appears after a click on Cite (`action_buttons`)."""


def action_buttons(table: str = "", can_save: bool = True) -> str:
    """Draw the buttons that share, save and cite a page.

    Args:
        table: The table to save.
        can_save: Whether to offer saving.
    """
    saves = {"csv": "CSV", "json": "JSON"} if can_save else {}
    labels_by_act = {"link": "Copy link", **saves, "cite": "Cite"}
    return "".join(
        f'<button type="button" class="link" data-act="{act}"{f" data-of={chr(34)}{table}{chr(34)}" if table else ""}>{label}</button>'
        for act, label in labels_by_act.items()
    )


def measured_sections(board: Board) -> list[Section]:
    """List the question sets with known answers.

    Complete official sets come first, then those with most results.
    """
    measured = [section for section in board.snapshot.all_sections if _measured(section)]
    return sorted(measured, key=lambda section: (section.kind != "complete", -len(_measured(section))))


def _measured(section: Section) -> list[Entry]:
    """List the results of a section whose answers are known."""
    return [entry for entry in section.entries if entry.result.kind == "measured" and entry.answers is not None]


def chosen_section(board: Board, request: Request) -> Section | None:
    """Return the question set that a request names, else the first with answers.

    The result is None if no answers are known at all.
    """
    sections = measured_sections(board)
    matches = [section for section in sections if set_name(section) == str(request.get("set") or "")]
    return next(iter(matches or sections), None)


def answer_key(section: Section, question: Any) -> list[int]:
    """Return the correct options of a question; empty if its source hides them.

    Hidden keys stay hidden even if the store has them.

    Args:
        section: The question set.
        question: A row of its table of questions.
    """
    is_hidden = section.kind != "phantom" and section.split in board_spec(section.family).hidden_splits
    return [] if is_hidden else [int(option) for option in question["answer"]]


def set_select(sections: Sequence[Section], chosen: Section) -> str:
    """Draw the field that chooses a question set.

    Args:
        sections: The question sets to choose from.
        chosen: The one that is chosen.
    """
    titles = {
        set_name(section): f"{set_title(section)}, {plural(section.questions, 'question')}" for section in sections
    }
    choices = options(list(titles.items()), set_name(chosen))
    return f'<label>Questions <select data-name="set">{choices}</select></label>'


def result_input(label: str, name: str, chosen: str, entries: Sequence[Entry], hint: str) -> str:
    """Draw a text field that suggests results by name, since they are too many for a list.

    Args:
        label: Its label.
        name: Its key in an address.
        chosen: Its content.
        entries: The results.
        hint: Its placeholder.
    """
    return name_input(
        label,
        name,
        chosen,
        [(result_name, "") for result_name in sorted(entry_labels(entries).values(), key=str.lower)],
        hint,
    )


def name_input(label: str, name: str, chosen: str, suggestions: Sequence[tuple[str, str]], hint: str) -> str:
    """Draw a text field that suggests names.

    Args:
        label: Its label.
        name: Its key in an address.
        chosen: Its content.
        suggestions: Names, each with a note beside it, or "".
        hint: Its placeholder.
    """
    items = "".join(
        '<option value="{}"{}></option>'.format(
            text(suggestion, MAX_CHOICE_LENGTH), f' label="{text(note)}"' if note else ""
        )
        for suggestion, note in suggestions
    )
    return (
        f'<label>{text(label)} <input data-name="{name}" type="search" list="results-{name}" value="{text(chosen, MAX_CHOICE_LENGTH)}" '
        f'placeholder="{text(hint)}" autocomplete="off"></label><datalist id="results-{name}">{items}</datalist>'
    )


def distinguishing_tags(entries: Sequence[Entry]) -> dict[str, str]:
    """Return entry key -> the settings that distinguish a result from the others.

    Settings such as method, prompt and extraction are named only if they are not the same for all
    results.

    Results of one model with the same settings are distinguished by the names of their runs. A
    judge is always named.
    """
    results = {entry.key: entry.result for entry in entries}
    methods = [result.method for result in results.values()]
    # If every method has one prompt, the prompt adds nothing to the method.
    is_prompt_varied = len({(method.name, method.prompt) for method in methods}) > len(
        {method.name for method in methods}
    )
    parts = {
        entry.key: (
            method_name(entry.result.method.name),
            str(entry.result.method.generation.get("variant", "")),
            entry.result.method.prompt if is_prompt_varied else None,
            f"{entry.result.method.extraction} extraction"
            if entry.result.method.extraction not in (None, "ours")
            else "",
            f"{entry.result.method.shots} shots" if entry.result.method.shots else "",
            f"{entry.result.method.samples} samples" if (entry.result.method.samples or 1) > 1 else "",
            f"derive version {entry.result.derive_version}" if ranking_group(entry) == "outdated" else "",
        )
        for entry in entries
    }
    is_varied = [len(set(values)) > 1 for values in zip(*parts.values(), strict=True)]

    def tag(entry: Entry) -> str:
        judge = judge_label(entry.result)
        varied = [part for part, differs in zip(parts[entry.key], is_varied, strict=True) if differs]
        return " · ".join(filter(None, (*varied, f"read by judge {judge}" if judge else "")))

    identities = {entry.key: (entry.result.model.name, tag(entry), entry_source(entry)) for entry in entries}
    # If two results still have the same tag, add the names of their runs.
    twins = Counter(identities.values())
    runs = {key: key.rsplit("/", 1)[-1] if twins[row] > 1 else "" for key, row in identities.items()}
    return {key: " · ".join(filter(None, (row[1], runs[key]))) for key, row in identities.items()}


def source_tables(result: Result) -> str:
    """Return the paper's tables that print a published result; "" for other results."""
    return (result.source.table or "") if result.source else ""


LONG_FACTS = ("Withdrawn", "Note")
"""Facts that are shown in full, because they are sentences that a person wrote."""


def provenance_details(
    entry: Entry, section: Section, metric: str | None = None, branches: Sequence[TreePath] = ()
) -> str:
    """Draw the provenance of a result: model, method, questions, source, and the store's records.

    Args:
        entry: The result.
        section: Its question set.
        metric: The score that the page shows.
        branches: The selection that the page shows.
    """
    result = entry.result
    method, model, benchmark = result.method, result.model, result.benchmark
    is_measured, source = result.kind == "measured", result.source
    facts: list[tuple[str, object]] = [
        ("Run", entry.key),
        (
            "Model",
            " ".join(str(part) for part in (model.name, model.revision, model.snapshot_date) if part),
        ),
        ("Parameters", count(model.parameters) if model.parameters else None),
        ("Method", method.name),
        ("Prompt", method.prompt),
        ("Shots", method.shots),
        ("Samples", method.samples),
        ("Extraction", method.extraction),
        ("Judge", _settings(method.judge)),
        ("Generation", _settings(method.generation)),
        (
            "Answers",
            ", ".join(f"{count(n)} {status}" for status, n in result.statuses.items() if n),
        ),
        ("Options in every order", _option_orders(result.environment.get("permuted"))),
        ("Deviations", "; ".join(result.deviations)),
        ("Questions", f"{count(benchmark.questions)}, {benchmark.split}"),
        ("Fingerprint", benchmark.fingerprint),
        ("Dataset", " ".join(str(part) for part in (benchmark.repo, benchmark.revision) if part)),
        ("Derive version", result.derive_version if is_measured else None),
        *_store_facts(entry.provenance),
        ("Made (as submitted)", result.created_at) if is_measured else ("Published", result.created_at[:10]),
        ("Command", result.command),
        ("Runs combined", ", ".join(result.run_ids or [])),
        *([("Source", source.citation), ("Table", source.table), ("Note", source.note)] if source else []),
    ]
    items = "".join(
        f"<div><dt>{name}</dt><dd>{text(value, 2200 if name in LONG_FACTS else 600)}</dd></div>"
        for name, value in facts
        if value not in (None, "")
    )
    address = compare_address(section, metric, branches, first=entry.key)
    return f'<p><a class="link" href="{address}">Compare with another result</a></p><dl class="detail">{items}</dl>'


def _store_facts(provenance: Provenance) -> list[tuple[str, object]]:
    """List who submitted a result and when, the store's flags, remarks, and its withdrawal."""
    acceptance, withdrawal = provenance.acceptance, provenance.withdrawal
    facts: list[tuple[str, object]] = []
    if acceptance is not None:
        facts += [
            ("Submitted by", acceptance.account),
            ("Added", acceptance.accepted_at),
            ("Verified by", acceptance.verified_by),
            *(("Flagged", flag) for flag in acceptance.flags),
        ]
    if withdrawal is not None:
        facts.append(("Withdrawn", f"{withdrawal.withdrawn_at} by {withdrawal.account}: {withdrawal.reason}"))
    return facts


def _settings(settings: Mapping[str, object] | None) -> str | None:
    """Format settings: `temperature 0, max tokens 512`; None if there are none."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in (settings or {}).items()) or None


def _option_orders(permuted: object) -> str | None:
    """Describe a run with the options in every order; None for other runs.

    It shows whether the model chooses an option, or rather a letter.
    """
    if not isinstance(permuted, dict):
        return None

    def share(name: str) -> str:
        value = permuted.get(name)
        return f"{number(value)}%" if isinstance(value, int | float) and not isinstance(value, bool) else "–"

    n_questions = permuted.get("questions")
    questions = f" of {plural(n_questions, 'question')} answered in every order" if isinstance(n_questions, int) else ""
    return f"same option {share('same_option')}, same letter {share('same_letter')}{questions}"


def no_answers_page() -> str:
    """Draw the page shown if answers are needed and the board has none: what is missing, and how to
    add it.
    """
    return (
        '<h2 class="finding">No questions are known yet.</h2><p class="sub">This board has only what papers print: scores, but neither '
        "questions nor answers. Both come with a run: <code>medprobe eval BENCHMARK --model MODEL</code>, then <code>medprobe submit "
        'RUN_DIR --to STORE</code>. Published scores can be compared on <a href="#/compare">Compare</a>.</p>'
    )


def unknown_name_note(noun: str, requested: object, actual: str, scope: str = "on this board") -> str:
    """Draw a note if an address names something that does not exist; else "".

    Args:
        noun: What the address names, such as "Score".
        requested: The name in the address.
        actual: The name of what the page shows.
        scope: Where it does not exist.
    """
    note = prose(f"{noun} {requested}: not {scope}. Another one is shown.", 400)
    return f'<p class="note">{note}</p>' if requested and str(requested) != actual else ""
