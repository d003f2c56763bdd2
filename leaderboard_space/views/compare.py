"""Draw the page Compare: how two or more results differ on the same questions, in which settings,
and on which questions."""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from leaderboard_space import sentences
from leaderboard_space.benchmarks import BENCHMARK_LABELS, board_spec, metric_info
from leaderboard_space.comparing import (
    SLOTS,
    Comparison,
    Difference,
    answered_pair,
    cause_rows,
    comparable_sections,
    different_settings,
    flipped_units,
    load_comparison,
)
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import NO_ANSWER, read_answers, read_case_answers
from leaderboard_space.data.sections import Entry, canonical_name, entry_source
from leaderboard_space.data.tree import selection_group_names
from leaderboard_space.export import Table, format_selection, name_set, set_citation, table_file
from leaderboard_space.html import count, number, options, prose, score_text, text
from leaderboard_space.views.cases import draw_case, options_in_full
from leaderboard_space.views.parts import (
    CITE_BOX,
    Request,
    action_buttons,
    address_of,
    answer_key,
    compare_address,
    model_address,
    name_input,
    result_input,
    save_menu,
    set_name,
    set_select,
    unknown_name_note,
)
from leaderboard_space.views.tables.table import (
    TONE_CLASSES,
    Column,
    column,
    name_column,
    score_column_group,
    scrollable,
    table,
    titled_table,
)

MAX_PAIR_ROWS = 28
"""Maximum number of rows in the table of pairs."""
MAX_FLIPS = 8
"""Maximum number of cases drawn below a comparison."""


def page(board: Board, request: Request) -> str:
    """Draw the page as HTML.

    Args:
        board: The board.
        request: `set`, `branch`, `facet`, `metric`, and results under `first`, `second` ...
            `eighth`.
    """
    comparison = load_comparison(board, request)
    if comparison is None:
        return _nothing("No set of questions has two results yet, so there is nothing to compare.")
    form = _form(board, comparison) + _selection(comparison)
    form += unknown_name_note("Set of questions", request.get("set"), set_name(comparison.section))
    if comparison.unknown or len(comparison.chosen) < 2 or not comparison.metric:
        names = ", ".join(f"“{name}”" for name in comparison.unknown)
        unknown_names = f"There is no result named {names} on these questions. Choose one from the list."
        problem = (
            "Choose two different results."
            if len(comparison.chosen) < 2
            else "These results have no known score in common."
        )
        return form + _nothing(unknown_names if names else problem)
    form += unknown_name_note("Score", request.get("metric"), comparison.metric, "known for these results")
    if comparison.is_example:
        form += f'<p class="note">{sentences.EXAMPLE_NOTE}</p>'
    # Computed once: the headline and the table of pairs must agree.
    pairs = comparison.differences(comparison.metric)
    parts = (
        form,
        _finding(comparison, pairs),
        _scores(comparison),
        _causes(comparison),
        _pairs(comparison, pairs) if len(comparison.chosen) > 2 and pairs else "",
        _every_score(comparison),
        _settings(comparison),
        _flips(board, comparison),
    )
    return "".join(parts)


def file(board: Board, request: Request) -> dict[str, str]:
    """Return a table of the page as a file, or the page's citation.

    Args:
        board: The board.
        request: As for `page`; `of`: scores, pairs, causes, settings or flips (without a limit on
            rows); `as`: csv, json or cite.

    Returns:
        `name`, `text` and `type` of the file.

    Raises:
        BadInput: There is nothing to compare.
    """
    comparison = load_comparison(board, request)
    if comparison is None or len(comparison.chosen) < 2 or not comparison.metric:
        raise BadInput("there is nothing to compare here. Choose two different results.")
    names = [comparison.name(entry) for entry in comparison.chosen]
    if str(request.get("as")) == "cite":
        section, branches = comparison.section, comparison.query.branches
        title = f"Comparison on {name_set(section)}: {comparison.metric}"
        selection = f" Selection: {format_selection(branches)}." if branches else ""
        return set_citation(section, title, f"Results: {'; '.join(names)}.{selection}", comparison.chosen, request)
    tables = {
        "scores": _score_rows,
        "pairs": _score_rows,
        "causes": cause_rows,
        "settings": setting_rows,
        "flips": flip_rows,
    }
    table_name = str(request.get("of"))
    table_name = table_name if table_name in tables else "scores"
    file_name = f"compare-{table_name}-{'-'.join(names[:2])}"
    return table_file(tables[table_name](comparison), file_name, str(request.get("as")))


def _nothing(sentence: str) -> str:
    """Draw the headline of a page that has nothing to compare."""
    return f'<h2 class="finding">{prose(sentence, 400)}</h2>'


def _form(board: Board, comparison: Comparison) -> str:
    """Draw the fields that choose questions, score and results.

    There is one more field than there are results.
    """
    section, sections = comparison.section, comparable_sections(board)
    # One empty field invites another result.
    slots = SLOTS[: max(len(comparison.fields) + 1, 2)]
    models = sorted(
        {entry.result.model.name for section_of_two in sections for entry in section_of_two.entries},
        key=str.lower,
    )

    def field(at: int, slot: str) -> str:
        label, hint = (slot.capitalize(), "a model") if at < 2 else (f"And {slot}", "add a model")
        content = "".join(comparison.fields[at : at + 1])
        if comparison.is_set_chosen:
            return result_input(label, slot, content, section.entries, hint)
        return name_input(label, slot, content, [(name, "") for name in models], hint)

    fields = "".join(field(at, slot) for at, slot in enumerate(slots))
    choices = options(
        [(name, metric_info(name, section.family).label) for name in comparison.metrics],
        comparison.metric,
    )
    return (
        f'<div class="form">{set_select(sections, section)}{fields}'
        f'<label>Score <select data-name="metric">{choices}</select></label>'
        f'<span class="acts">{action_buttons(can_save=False)}</span></div>{CITE_BOX}'
    )


def _selection(comparison: Comparison) -> str:
    """State which of the set's questions are compared, if not all of them."""
    query, notes = comparison.query, ""
    if query.dropped:
        ignored = text(", ".join(query.dropped), 400)
        notes = f'<p class="note">Not in this question set, therefore ignored: {ignored}.</p>'
    if query.branches:
        slots = {SLOTS[at]: entry.key for at, entry in enumerate(comparison.chosen)}
        all_questions = compare_address(comparison.section, comparison.metric, (), **slots)
        names = prose(" and ".join(selection_group_names(query.branches)), 300)
        notes += (
            f'<p class="sub">Only questions on {names}. <a class="link" href="{all_questions}">All questions</a></p>'
        )
    return notes


def _finding(comparison: Comparison, pairs: Sequence[Difference]) -> str:
    """Draw the headline, the numbers of the test below it, and why results have no score."""
    chosen = comparison.chosen
    info = metric_info(comparison.metric, comparison.section.family)
    reasons = [(entry, why) for entry in chosen if (why := comparison.no_score(entry, comparison.metric))]
    notes = "".join(f'<p class="note">{text(f"{comparison.name(entry)}: {why}.", 400)}</p>' for entry, why in reasons)
    if not pairs:
        two = " and ".join(map(comparison.name, chosen)) if len(chosen) == 2 else "any two of these"
        return _nothing(f"{info.label} cannot be compared between {two}.") + notes
    finding = sentences.pairs_headline(sum(pair.is_significant for pair in pairs), len(pairs), info.label)
    paired = sum(pair.is_paired for pair in pairs)
    below = sentences.pairs_test_note(paired, len(pairs) - paired, pairs[0].models)
    if len(chosen) == 2:
        finding, below = _finding_of_two(comparison, pairs[0])
    return f'<h2 class="finding">{prose(finding, 400)}</h2><p class="sub">{prose(below, 900)}</p>{notes}'


def _finding_of_two(comparison: Comparison, pair: Difference) -> tuple[str, str]:
    """Return the headline on two results, and the text below it."""
    family, info = comparison.section.family, metric_info(comparison.metric, comparison.section.family)
    upper, lower = comparison.name(pair.entry_a), comparison.name(pair.entry_b)
    label = f"{info.label} on {BENCHMARK_LABELS[family]}"
    finding = sentences.comparison_headline(
        upper, lower, label, info.higher_is_better, pair.value, pair.p, pair.corrected
    )
    numbers = (pair.value, pair.low, pair.high, pair.p)
    below = sentences.unpaired_test_details(*numbers)
    if pair.n is not None:
        wins = pair.only_one or 0, pair.only_other or 0
        score = comparison.scores(comparison.metric)[pair.entry_a.key]
        unit = board_spec(family).case if score.n == score.n_cases else "scored unit"
        below = sentences.paired_test_details(upper, lower, *numbers, pair.method, (*wins, pair.n - sum(wins)), unit)
    return finding, f"{below} {sentences.ranking_significance(pair.corrected, pair.models)}"


def _scores(comparison: Comparison) -> str:
    """Draw the chosen results on the chosen score, with intervals and links to their models."""
    metric, scores = comparison.metric, comparison.scores(comparison.metric)
    info = metric_info(metric, comparison.section.family)
    levels = {round(score.chance, 6) for score in scores.values() if score.chance is not None}
    guess = f"; dashed: guessing ({sentences.format_chance(levels.pop())})" if len(levels) == 1 else ""
    titles = (
        "%" if info.unit == "percent" else "Value",
        f"{info.label}: axis 0 to 100{guess}",
        "95% interval",
    )

    def model_link(entry: Entry) -> str:
        address = model_address(canonical_name(entry.result.model.name))
        return f'<a href="{address}">{text(comparison.name(entry), 200)}</a>'

    columns = [
        name_column("Result", model_link),
        *score_column_group(
            lambda entry: scores.get(entry.key),
            titles,
            lambda entry: info.unit,
            why_of=lambda entry: text(comparison.no_score(entry, metric) or "not known", 300),
        ),
        column(
            "Source",
            lambda entry: text(entry_source(entry, metric if entry.key in scores else None), 60),
        ),
    ]
    tones = {key: f"v-{TONE_CLASSES[score.verdict]}" for key, score in scores.items()}
    score_table = table(
        "chosen",
        f"{info.label} of the chosen results",
        columns,
        [("", comparison.chosen)],
        "lines",
        lambda entry: f' class="{tones.get(entry.key, "none")}"',
    )
    return scrollable(score_table)


def _causes(comparison: Comparison) -> str:
    """Draw the table of `cause_rows`; "" if it is empty.

    Each bar begins where the one above it ends, so the last one ends at the difference.
    """
    rows = cause_rows(comparison)
    if not rows:
        return ""
    ends = [0.0, *accumulate(float(row["points"]) for row in rows)]
    low, width = min(ends), max(ends) - min(ends) or 1.0
    row_number = {row["factor"]: at for at, row in enumerate(rows)}

    def bar(row: dict[str, object]) -> str:
        at = row_number[row["factor"]]
        start, end = sorted(100 * (edge - low) / width for edge in ends[at : at + 2])
        tone = "better" if ends[at + 1] >= ends[at] else "worse"
        style = f"left:{start:.2f}%;width:{end - start:.2f}%"
        return f'<span class="track v-{tone}" aria-hidden="true"><i class="bar" style="{style}"></i></span>'

    # Without keys: sorted bars would not begin where the last one ended.
    columns = [
        name_column("Cause", lambda row: text(row["factor"], 80)),
        column("Points", lambda row: number(row["points"])),
        column("Each bar begins where the last one ended", bar),
        column("Answers", lambda row: count(row["answers"])),
        column("", lambda row: text(row["detail"], 200)),
    ]
    title = f"Why first − second is {ends[-1]:+.1f} points"
    return titled_table(title, "causes", columns, rows)


def _pairs(comparison: Comparison, pairs: Sequence[Difference]) -> str:
    """Draw the table of all pairs, significant ones first, the higher score of a pair first.

    Each pair links to the comparison of these two results alone.
    """

    def names(pair: Difference) -> str:
        branches, slots = (
            comparison.query.branches,
            {"first": pair.entry_a.key, "second": pair.entry_b.key},
        )
        pair_address = compare_address(comparison.section, comparison.metric, branches, **slots)
        upper, lower = (text(comparison.name(entry), 100) for entry in (pair.entry_a, pair.entry_b))
        return f'<a href="{pair_address}">{upper} over {lower}</a>'

    def verdict(pair: Difference) -> str:
        significant = "significant" if pair.is_significant else "not significant"
        return f"{significant}, {text(sentences.format_p_value(pair.corrected))}"

    corrected = sentences.describe_correction(len(pairs), pairs[0].models)
    columns = [
        name_column("Pair", names, "pair"),
        column(
            "Difference (points)",
            lambda pair: number(pair.value),
            "difference",
            value=lambda pair: pair.value,
        ),
        column(
            "95% interval",
            lambda pair: sentences.format_difference_interval(pair.low, pair.high),
            "interval",
            value=lambda pair: pair.low,
        ),
        column("p", lambda pair: text(sentences.format_p_value(pair.p)), "p", value=lambda pair: pair.p),
        column(f"Different? ({corrected})", verdict, "different", value=lambda pair: pair.corrected),
        column("Test", lambda pair: "paired" if pair.is_paired else "unpaired", "test"),
    ]
    # A pair is named "A over B", so A must have the higher score.
    rows = [pair if pair.value >= 0 else pair.reversed() for pair in pairs[:MAX_PAIR_ROWS]]
    return titled_table("Every pair", "pairs", columns, rows)


def _result_columns(
    comparison: Comparison,
    content: Callable[[str, int], str],
    value: Callable[[str, int], float | None] | None = None,
) -> list[Column[str]]:
    """Build one column per chosen result.

    `content` and `value` return a cell's HTML and number, given the row and the result's position.
    """

    def result_column(at: int) -> Column[str]:
        number_of = (lambda row: value(row, at)) if value else None
        return column(
            comparison.name(comparison.chosen[at]),
            lambda row: content(row, at),
            SLOTS[at],
            value=number_of,
        )

    return [result_column(at) for at in range(len(comparison.chosen))]


def _every_score(comparison: Comparison) -> str:
    """Draw every score that two of the results have; for two results, with the difference."""
    scores = {metric: comparison.scores(metric) for metric in comparison.metrics}
    infos = {metric: metric_info(metric, comparison.section.family) for metric in scores}

    def value(metric: str, at: int) -> float | None:
        score = scores[metric].get(comparison.chosen[at].key)
        return score.value if score else None

    columns = [
        name_column("Score", lambda metric: text(infos[metric].label), "score"),
        *_result_columns(comparison, lambda metric, at: score_text(value(metric, at), infos[metric].unit), value),
    ]
    if len(comparison.chosen) == 2:
        pairs = {metric: pair for metric in scores for pair in comparison.differences(metric)}

        def difference(metric: str) -> str:
            if metric not in pairs:
                return "not comparable"
            ends, p = (
                sentences.format_difference_interval(pairs[metric].low, pairs[metric].high),
                pairs[metric].p,
            )
            return f"<b>{number(pairs[metric].value)}</b> ({ends}), {text(sentences.format_p_value(p))}"

        title = "First − second (95% interval), p of each score alone"
        values = {metric: pair.value for metric, pair in pairs.items()}
        columns.append(column(title, difference, "difference", value=values.get))
    return titled_table("Every score (%)", "scores", columns, comparison.metrics)


def _score_rows(comparison: Comparison) -> Table:
    """List the differences of every pair on every score.

    The results without a score follow, with the reason.
    """
    about = {"benchmark": comparison.section.benchmark, "split": comparison.section.split}
    rows: Table = []
    for metric in comparison.metrics:
        scores = comparison.scores(metric)
        rows += [
            {
                **about,
                "first": comparison.name(pair.entry_a),
                "second": comparison.name(pair.entry_b),
                "metric": metric,
                "first_value": scores[pair.entry_a.key].value,
                "second_value": scores[pair.entry_b.key].value,
                "difference": pair.value,
                "low": pair.low,
                "high": pair.high,
                "p": pair.p,
                "p_corrected": pair.corrected,
                "test": pair.method,
                "units": pair.n,
                "only_first": pair.only_one,
                "only_second": pair.only_other,
                "first_run": pair.entry_a.key,
                "second_run": pair.entry_b.key,
            }
            for pair in comparison.differences(metric)
        ]
        rows += [
            {
                **about,
                "first": comparison.name(entry),
                "metric": metric,
                "first_run": entry.key,
                "no_score": why,
            }
            for entry in comparison.chosen
            if (why := comparison.no_score(entry, metric))
        ]
    return rows


def setting_in_words(value: object) -> str:
    """Format a setting: a dash if it is missing, a mapping as `name value` pairs.

    >>> setting_in_words({"temperature": 0.0, "stop": ["a", "b"]})
    'temperature 0.0, stop a, b'
    >>> setting_in_words(None), setting_in_words(True)
    ('–', 'yes')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        value = [f"{name} {setting_in_words(setting)}" for name, setting in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(map(setting_in_words, value))
    return "–" if value is None or value == "" else str(value)


def setting_rows(comparison: Comparison) -> Table:
    """List the settings in which the results differ, one row each."""
    slots = list(zip(SLOTS, comparison.chosen, strict=False))
    results = {f"{slot}_result": comparison.name(entry) for slot, entry in slots}
    return [
        {
            "setting": name,
            **{
                slot: None if value is None else setting_in_words(value)
                for (slot, _), value in zip(slots, values, strict=True)
            },
            **results,
        }
        for name, values in different_settings(comparison).items()
    ]


def _settings(comparison: Comparison) -> str:
    """Draw the settings in which the results differ.

    Only if there are none can a difference be attributed to the models.
    """
    different = different_settings(comparison)
    if not different:
        is_known = all(entry.result.kind == "measured" for entry in comparison.chosen)  # papers print few settings
        subject = "Both" if len(comparison.chosen) == 2 else "All"
        return f'<p class="sub">{subject} were run with the same settings.</p>' if is_known else ""

    columns: list[Column[str]] = [
        name_column("Setting", text, "setting"),
        *_result_columns(comparison, lambda name, at: text(setting_in_words(different[name][at]), 300)),
    ]
    return titled_table("Settings that differ", "settings", columns, list(different), "plain left")


def flip_rows(comparison: Comparison) -> Table:
    """List the questions on which two results differ, with both answers, one row each."""
    two, outcomes = answered_pair(comparison), comparison.outcomes
    if two is None or outcomes is None:
        return []
    flipped = list(flipped_units(comparison, *two))
    # Read each answers file only once, for all questions.
    ids = outcomes.questions["question_id"].iloc[[at for *_, questions in flipped for at in questions]].tolist()
    answers = [read_case_answers(entry, ids) if ids else {} for entry in two]

    def row(unit: int, winner: Entry, question: pd.Series) -> dict[str, object]:
        answer_a, answer_b = (answer.get(question["question_id"], NO_ANSWER) for answer in answers)
        return {
            "unit": unit,
            "higher_here": comparison.name(winner),
            "case_id": question["case_id"],
            "question_id": question["question_id"],
            "question": question["question"],
            "key": options_in_full(question, answer_key(comparison.section, question)) or "hidden",
            "first": comparison.name(two[0]),
            "first_answer": options_in_full(question, answer_a[0]) or answer_a[1],
            "second": comparison.name(two[1]),
            "second_answer": options_in_full(question, answer_b[0]) or answer_b[1],
        }

    return [
        row(unit, winner, outcomes.questions.iloc[at])
        for unit, (winner, _, questions) in enumerate(flipped, 1)
        for at in questions
    ]


def _flips(board: Board, comparison: Comparison) -> str:
    """Draw the cases on which two results differ, with their images and both answers."""
    entries, outcomes = answered_pair(comparison), comparison.outcomes
    if entries is None or outcomes is None:
        return ""
    title, section = "<h3>Questions that flip</h3>", comparison.section
    flipped = list(flipped_units(comparison, *entries))
    if not flipped:
        return f'{title}<p class="sub">None: both have the same outcome everywhere on this score.</p>'
    winners: dict[int, Entry] = {}  # case -> the result that scored more on its first differing unit
    for winner, case, _ in flipped:
        winners.setdefault(case, winner)
    drawn_cases = list(winners)[:MAX_FLIPS]
    answers = read_answers(outcomes, np.array(drawn_cases), entries)
    # `read_answers` leaves out results that cannot be read.
    if len(answers) < 2:
        return f'{title}<p class="sub">The answers of one of the two cannot be read.</p>'
    ids = outcomes.questions.drop_duplicates("case_id")["case_id"].astype(str).tolist()

    def article_of(case: int) -> str:
        case_link = address_of("cases", ids[case], set=set_name(section), first=entries[0].key, second=entries[1].key)
        winner = text(comparison.name(winners[case]), 120)
        title_suffix = (
            f'<small>{winner} scored more · <a href="{case_link}">both answers and neighbouring cases</a></small>'
        )
        return draw_case(board, section, outcomes, case, entries, answers, title_suffix)

    names = [comparison.name(entry) for entry in entries]
    caption = sentences.flips_caption(names[0], names[1], len(flipped), len(winners), len(drawn_cases))
    if any((entry.result.method.samples or 1) > 1 for entry in entries):
        caption += f" {sentences.FIRST_SAMPLE_NOTE}"
    heading = f'<div class="bar-head">{title}{save_menu("flips")}</div><p class="sub">{prose(caption, 500)}</p>'
    return heading + "".join(map(article_of, drawn_cases))
