"""Compare: two or more results on the same questions: how they differ, what differs in their settings, and the questions that flip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput
from leaderboard_space import sentences
from leaderboard_space.benchmarks import LABELS, spec
from leaderboard_space.comparing import (
    SLOTS,
    Comparison,
    Difference,
    comparable_sections,
    compared,
)
from leaderboard_space.data.board import Board
from leaderboard_space.data.cases import NO_ANSWER, Answer, answers_to
from leaderboard_space.data.model_names import entry_mark, identity_of
from leaderboard_space.data.ranks.standings import info_of
from leaderboard_space.data.store.sections import Entry
from leaderboard_space.data.tree import selection_name
from leaderboard_space.export import Table, as_file, cited, selection_in_words
from leaderboard_space.html import interval, number, options, prose, score_text, text
from leaderboard_space.views.case import article, datasets_of, given_to, in_full
from leaderboard_space.views.parts import (
    CITE_BOX,
    TONE,
    WHOLE,
    Request,
    acts,
    address_of,
    compare_address,
    dots,
    files,
    framed,
    key_of,
    model_address,
    name_input,
    not_known,
    result_input,
    set_name,
    set_select,
    sorted_by,
)

MOST_PAIRS = 28


def page(board: Board, request: Request) -> str:
    """The page for what `request` chooses: `set`, `branch`, `facet`, `metric`, and results under `first`, `second` ... `eighth`."""
    found = compared(board, request)
    if found is None:
        return _nothing("No set of questions has two results yet, so there is nothing to compare.")
    form = (
        _form(board, found)
        + _selection(found)
        + not_known("Set of questions", request.get("set"), set_name(found.section))
    )
    if found.unknown:
        named = ", ".join(f"“{name}”" for name in found.unknown)
        return form + _nothing(f"There is no result named {named} on these questions. Choose one from the list.")
    if len(found.chosen) < 2:
        return form + _nothing("Choose two different results.")
    if not found.metric:
        return form + _nothing("These results have no known score in common.")
    form += not_known("Score", request.get("metric"), found.metric, "known of these results")
    pairs = found.differences(found.metric)
    if found.is_example:
        form += f'<p class="note">{sentences.EXAMPLE}</p>'
    parts = [form, _finding(found, pairs), _scores(found)]
    if len(found.chosen) > 2:
        parts.append(_pairs(found, pairs))
    return "".join([*parts, _every_score(found), _settings(found), _flips(board, found)])


def file(board: Board, request: Request) -> dict[str, str]:
    """A table of the page as a file (`name`, `text`, `type`). `of`: scores, pairs, settings or flips (all of them); `as`: csv or json,
    or cite: how to cite the page.

    Raises BadInput if there is nothing to compare.
    """
    found = compared(board, request)
    if found is None or len(found.chosen) < 2 or not found.metric:
        raise BadInput("there is nothing to compare here. Choose two different results.")
    tables = {
        "scores": _score_rows,
        "pairs": _score_rows,
        "settings": setting_rows,
        "flips": flip_rows,
    }
    if str(request.get("as")) == "cite":
        section, named = found.section, "; ".join(found.name(entry) for entry in found.chosen)
        title = f"Comparison on {section.benchmark} ({section.split}), {section.title().lower()}: {found.metric}"
        questions = f" Questions: fingerprint {section.fingerprint}." if section.fingerprint else ""
        where = f" Selection: {selection_in_words(found.query.branches)}." if found.query.branches else ""
        return cited(title, f"Results: {named}.{where}{questions}", found.chosen, request)
    of = str(request.get("of"))
    names = "-".join(found.name(entry) for entry in found.chosen[:2])
    table = tables.get(of, _score_rows)(found)
    return as_file(table, f"compare-{of if of in tables else 'scores'}-{names}", str(request.get("as")))


def _nothing(line: str) -> str:
    return f'<h2 class="finding">{prose(line, 400)}</h2>'


def _form(board: Board, found: Comparison) -> str:
    """The choice of questions, score and results, with one more field than there are results."""
    given = found.fields
    slots = SLOTS[: min(max(len(given) + 1, 2), len(SLOTS))]
    models = sorted(
        {entry.result.model.name for one in comparable_sections(board) for entry in one.entries}, key=str.lower
    )

    def field(at: int, slot: str) -> str:
        said, now = slot.capitalize() if at < 2 else f"And {slot}", given[at] if at < len(given) else ""
        hint = "a model" if at < 2 else "add a model"
        if found.chosen_set:
            return result_input(said, slot, now, found.section.entries, hint)
        return name_input(said, slot, now, [(name, "") for name in models], hint)

    fields = "".join(field(at, slot) for at, slot in enumerate(slots))
    choices = options([(name, info_of(name, found.section.family).label) for name in found.metrics], found.metric)
    return (
        f'<div class="form">{set_select(comparable_sections(board), set_name(found.section))}{fields}'
        f'<label>Score <select data-name="metric">{choices}</select></label>'
        f'<span class="acts">{acts(tables=False)}</span></div>{CITE_BOX}'
    )


def _selection(found: Comparison) -> str:
    """Which of the set's questions are compared, where not all are."""
    query = found.query
    gone = f'<p class="note">Not in this question set, therefore ignored: {text(", ".join(query.dropped), 400)}.</p>'
    if not query.branches:
        return gone if query.dropped else ""
    names = " and ".join(selection_name(query.branches))
    slots = {SLOTS[at]: entry.key for at, entry in enumerate(found.chosen)}
    every = compare_address(found.section, found.metric, (), **slots)
    return (
        f"{gone if query.dropped else ''}"
        f'<p class="sub">Only questions on {prose(names, 300)}. <a class="link" href="{every}">All questions</a></p>'
    )


def _finding(found: Comparison, pairs: Sequence[Difference]) -> str:
    info = info_of(found.metric, found.section.family)
    silent = "".join(
        f'<p class="note">{text(f"{found.name(entry)}: {why}.", 400)}</p>'
        for entry in found.chosen
        if (why := found.no_score(entry, found.metric))
    )
    if not pairs:
        one, other = (found.name(entry) for entry in found.chosen[:2])
        said = f"{info.label} cannot be compared between {one} and {other}." if len(found.chosen) == 2 else ""
        return _nothing(said or f"{info.label} cannot be compared between any two of these.") + silent
    if len(found.chosen) > 2:
        sure = sum(pair.is_sure for pair in pairs)
        paired = sum(pair.is_paired for pair in pairs)
        tested = sentences.pairs_tested(paired, len(pairs) - paired, pairs[0].models)
        return (
            f'<h2 class="finding">{prose(sentences.pairs_apart(sure, len(pairs), info.label), 300)}</h2>'
            f'<p class="sub">{text(tested, 600)}</p>{silent}'
        )
    (pair,) = pairs
    upper, lower = found.name(pair.one), found.name(pair.other)
    label = f"{info.label} on {LABELS[found.section.family]}"
    line = sentences.compared(upper, lower, label, info.higher_is_better, pair.value, pair.p, pair.corrected)
    below = sentences.compared_unpaired(pair.value, pair.low, pair.high, pair.p)
    if pair.n is not None:
        won = pair.only_one or 0, pair.only_other or 0
        score = found.score(pair.one, found.metric)
        case = spec(found.section.family).case if score and score.n == score.n_cases else "scored unit"
        alone = (*won, pair.n - sum(won))
        below = sentences.compared_in_full(
            upper, lower, pair.value, pair.low, pair.high, pair.p, pair.method, alone, case
        )
    ranked = sentences.in_the_ranking(pair.corrected, pair.models)
    return f'<h2 class="finding">{prose(line, 400)}</h2><p class="sub">{prose(f"{below} {ranked}", 900)}</p>{silent}'


def _scores(found: Comparison) -> str:
    """The chosen results on the chosen score, each with its interval, and a link to its model."""
    info = info_of(found.metric, found.section.family)
    held = found.scores(found.metric)
    rows = ""
    for entry in found.chosen:
        score = held.get(entry.key)
        name = f'<a href="{model_address(identity_of(entry.result.model.name))}">{text(found.name(entry), 200)}</a>'
        if score is None:
            why = text(found.no_score(entry, found.metric) or "not known", 300)
            mark = text(entry_mark(entry))
            rows += f'<tr class="none"><th scope="row">{name}</th><td colspan="3">{why}</td><td>{mark}</td></tr>'
            continue
        rows += (
            f'<tr class="v-{TONE[score.verdict]}"><th scope="row">{name}</th>'
            f'<td class="num"><b>{score_text(score.value, info.unit)}</b></td>'
            f'<td class="chart">{dots(score, WHOLE)}</td><td class="num">{interval(score)}</td>'
            f"<td>{text(entry_mark(entry, found.metric), 60)}</td></tr>"
        )
    chance = {round(score.chance, 6) for score in held.values() if score.chance is not None}
    line = f"; dashed: guessing ({sentences.percent_of_chance(chance.pop())})" if len(chance) == 1 else ""
    said, sign = f"{info.label}: axis 0 to 100{line}", "%" if info.unit == "percent" else "Value"
    return (
        f'<div class="scroll"><table class="lines" data-table="chosen" aria-label="{text(info.label)} of the chosen results">'
        f'<thead><tr><th scope="col">Result</th><th scope="col" class="num">{sign}</th><th scope="col">{text(said)}</th>'
        '<th scope="col" class="num">95% interval</th><th scope="col">Source</th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _pairs(found: Comparison, pairs: Sequence[Difference]) -> str:
    """Every pair, significant ones first; each is a link to the comparison of the two alone."""
    rows = ""
    for pair in pairs[:MOST_PAIRS]:
        alone = compare_address(
            found.section, found.metric, found.query.branches, first=pair.one.key, second=pair.other.key
        )
        upper, lower = (pair.one, pair.other) if pair.value >= 0 else (pair.other, pair.one)
        sign = 1 if pair.value >= 0 else -1
        ends = sorted((sign * pair.low, sign * pair.high))
        rows += (
            f'<tr><th scope="row"><a href="{alone}">{text(found.name(upper), 100)} over {text(found.name(lower), 100)}</a></th>'
            f"<td{sorted_by(abs(pair.value))}>{number(abs(pair.value))}</td>"
            f"<td{sorted_by(ends[0])}>{sentences.difference_interval(*ends)}</td>"
            f"<td{sorted_by(pair.p)}>{text(sentences.p_value(pair.p))}</td>"
            f"<td{sorted_by(pair.corrected)}>{'significant' if pair.is_sure else 'not significant'},"
            f" {text(sentences.p_value(pair.corrected))}</td><td>{'paired' if pair.is_paired else 'unpaired'}</td></tr>"
        )
    heads = (("pair", "Pair"), ("difference", "Difference (points)"), ("interval", "95% interval"), ("p", "p"),
             ("different", f"Different? ({sentences.corrected_for(len(pairs), pairs[0].models)})"), ("test", "Test"))  # fmt: skip
    return framed("Every pair", "pairs", heads, rows)


def _every_score(found: Comparison) -> str:
    """Every score that two of the results have; of two results with the difference."""
    two = len(found.chosen) == 2
    rows = ""
    for name in found.metrics:
        held, info = found.scores(name), info_of(name, found.section.family)
        values = "".join(
            f"<td{sorted_by(held[entry.key].value)}>{score_text(held[entry.key].value, info.unit)}</td>"
            if entry.key in held
            else "<td data-v=''>–</td>"
            for entry in found.chosen
        )
        more = ""
        if two:
            pair = next(iter(found.differences(name)), None)
            more = "<td data-v=''>not comparable</td>"
            if pair is not None:
                ends, p = sentences.difference_interval(pair.low, pair.high), text(sentences.p_value(pair.p))
                more = f"<td{sorted_by(pair.value)}><b>{number(pair.value)}</b> ({ends}), {p}</td>"
        rows += f'<tr><th scope="row">{text(info.label)}</th>{values}{more}</tr>'
    heads = [("score", "Score"), *((SLOTS[at], found.name(entry)) for at, entry in enumerate(found.chosen))]
    if two:
        heads.append(("difference", "First − second (95% interval), p of each score alone"))
    return framed("Every score (%)", "scores", heads, rows)


def _score_rows(found: Comparison) -> Table:
    table: Table = []
    for name in found.metrics:
        held = found.scores(name)
        for pair in found.differences(name):
            table.append(
                {
                    "benchmark": found.section.benchmark,
                    "split": found.section.split,
                    "first": found.name(pair.one),
                    "second": found.name(pair.other),
                    "metric": name,
                    "first_value": held[pair.one.key].value,
                    "second_value": held[pair.other.key].value,
                    "difference": pair.value,
                    "low": pair.low,
                    "high": pair.high,
                    "p": pair.p,
                    "p_corrected": pair.corrected,
                    "test": pair.method,
                    "units": pair.n,
                    "only_first": pair.only_one,
                    "only_second": pair.only_other,
                    "first_run": pair.one.key,
                    "second_run": pair.other.key,
                }
            )
        table += [
            {
                "benchmark": found.section.benchmark,
                "split": found.section.split,
                "first": found.name(entry),
                "metric": name,
                "first_run": entry.key,
                "no_score": why,
            }
            for entry in found.chosen
            if (why := found.no_score(entry, name))
        ]
    return table


def setting_in_words(value: object) -> str:
    """A setting in words: nothing as a dash, a table of settings as `name value` pairs.

    >>> setting_in_words({"temperature": 0.0, "stop": ["a", "b"]}), setting_in_words(None), setting_in_words(True)
    ('temperature 0.0, stop a, b', '–', 'yes')
    """
    if value is None or value == "":
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {setting_in_words(one)}" for name, one in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(setting_in_words(one) for one in value) or "–"
    return str(value)


def _settings_of(entry: Entry) -> dict[str, object]:
    """How a result was got."""
    method = entry.result.method
    found: dict[str, object] = {
        "method" if name == "name" else name: getattr(method, name)
        for name in ("name", "prompt", "shots", "samples", "extraction", "judge")
    }
    return {**found, **(method.generation or {}), "deviations": "; ".join(entry.result.deviations) or None}


def _different(found: Comparison) -> list[tuple[str, list[object]]]:
    """What differs in how the results were got: name, one value for each."""
    held = [_settings_of(entry) for entry in found.chosen]
    names = dict.fromkeys(name for settings in held for name in settings)
    rows = [(name, [settings.get(name) for settings in held]) for name in names if not name.endswith("_hash")]
    return [(name, values) for name, values in rows if any(value != values[0] for value in values)]


def setting_rows(found: Comparison) -> Table:
    return [
        {"setting": name, **{SLOTS[at]: None if value is None else setting_in_words(value) for at, value in enumerate(values)},
         **{f"{SLOTS[at]}_result": found.name(entry) for at, entry in enumerate(found.chosen)}}
        for name, values in _different(found)
    ]  # fmt: skip


def _settings(found: Comparison) -> str:
    """What differs in how they were run; a comparison is only about the models where nothing does."""
    different = _different(found)
    both = "Both" if len(found.chosen) == 2 else "All"
    if not different:
        known = all(entry.result.kind == "measured" for entry in found.chosen)  # papers print few settings
        return f'<p class="sub">{both} were run with the same settings.</p>' if known else ""
    rows = "".join(
        f'<tr><th scope="row">{text(name)}</th>{"".join(f"<td>{text(setting_in_words(value), 300)}</td>" for value in values)}</tr>'
        for name, values in different
    )
    heads = [("setting", "Setting"), *((SLOTS[at], found.name(entry)) for at, entry in enumerate(found.chosen))]
    return framed("Settings that differ", "settings", heads, rows, left=True)


MOST_FLIPS = 8


def _two(found: Comparison) -> tuple[Entry, Entry] | None:
    """The first two of the results that can be compared question by question."""
    answered = [entry for entry in found.chosen if found.has_answers(entry)]
    if len(answered) < 2 or found.outcomes is None or found.metric not in found.outcomes.metrics:
        return None
    return answered[0], answered[1]


def _won_alone(found: Comparison, one: Entry, other: Entry) -> Iterator[tuple[Entry, int, list[int]]]:
    """The units that one of the two won alone: who, the case, and the positions of the questions of the unit."""
    assert found.outcomes is not None
    units, at = found.outcomes.metrics[found.metric], found.outcomes.unit_index[found.metric]
    selected = found.outcomes.rows(found.metric, found.query.tree.mask(found.query.branches))
    left, right = (units.run(found.outcomes.row_of[entry.key])[0] for entry in (one, other))
    differ = np.flatnonzero(left != right)
    for unit in differ if selected is None else np.intersect1d(differ, selected):
        if at.question[unit] >= 0:
            where = [int(at.question[unit])]
        else:
            where = np.flatnonzero(found.outcomes.case_of_question == at.case[unit]).tolist()
        yield one if left[unit] > right[unit] else other, int(found.outcomes.case_of_question[where[0]]), where


def flip_rows(found: Comparison) -> Table:
    two = _two(found)
    if two is None or found.outcomes is None:
        return []
    rows: Table = []
    won = list(_won_alone(found, *two))
    asked = found.outcomes.questions["question_id"].iloc[[row for _, _, where in won for row in where]].tolist()
    given = [answers_to(entry, asked) if asked else {} for entry in two]
    for unit, (winner, _, where) in enumerate(won, 1):
        for row in where:
            question = found.outcomes.questions.iloc[row]
            rows.append(
                {
                    "unit": unit,
                    "higher_here": found.name(winner),
                    "case_id": question["case_id"],
                    "question_id": question["question_id"],
                    "question": question["question"],
                    "key": in_full(question, key_of(found.section, question)) or "hidden",
                    "first": found.name(two[0]),
                    "first_answer": _answer(given[0], question),
                    "second": found.name(two[1]),
                    "second_answer": _answer(given[1], question),
                }
            )
    return rows


def _answer(given: Mapping[str, Answer], question: pd.Series) -> str:
    """The options of an answer with their texts, else its status."""
    choice, status, _ = given.get(question["question_id"], NO_ANSWER)
    return in_full(question, choice) or status


def _flips(board: Board, found: Comparison) -> str:
    """The cases of which one of the two got more right than the other, drawn with their images and both answers."""
    two = _two(found)
    if two is None:
        return ""
    assert found.outcomes is not None
    flipped = list(_won_alone(found, *two))
    if not flipped:
        return (
            '<h3>Questions that flip</h3><p class="sub">None: both have the same outcome everywhere on this score.</p>'
        )
    cases = list({case: (case, winner.key) for winner, case, _ in reversed(flipped)}.values())[::-1]
    shown = cases[:MOST_FLIPS]
    given = given_to(found.outcomes, np.array([case for case, _ in shown]), two)
    if len(given) < 2:
        return '<h3>Questions that flip</h3><p class="sub">The answers of one of the two cannot be read.</p>'
    ids = found.outcomes.questions.drop_duplicates("case_id")["case_id"].astype(str).tolist()
    body = ""
    for case, winner in shown:
        both = address_of("cases", ids[case], set=set_name(found.section), first=two[0].key, second=two[1].key)
        head = f'<small>{text(found.name_of(winner), 120)} scored more · <a href="{both}">both answers and neighbouring cases</a></small>'
        body += article(found.section, found.outcomes, case, two, given, datasets_of(board, found.section), head)
    sub = sentences.flips(found.name(two[0]), found.name(two[1]), len(flipped), len(cases), len(shown))
    if any((entry.result.method.samples or 1) > 1 for entry in two):
        sub += f" {sentences.FIRST_SAMPLE}"
    return f'<div class="bar-head"><h3>Questions that flip</h3>{files("flips")}</div><p class="sub">{prose(sub, 500)}</p>{body}'
