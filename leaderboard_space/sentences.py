"""Write sentences on differences, single results and cases, and captions of tables and charts. Each
is made from its numbers alone, so that a test can check it against them.

See also: headlines of pages (`headlines.py`).
"""

from collections.abc import Collection, Sequence
from datetime import datetime

from eval_harness.derive.metrics import untested_reason
from eval_harness.records.result import Result, Score, Verdict
from eval_harness.scores.grading import NONRESPONSE_STATUSES
from eval_harness.store.formatting import format_image_points, interval_decimals
from eval_harness.store.sight import Sight
from leaderboard_space.benchmarks import board_spec, metric_info
from leaderboard_space.data.sections import Section
from leaderboard_space.html import count, in_words, interval, number, plural, score_text

EQUAL_TOLERANCE = 1e-9
"""Scores closer than this are equal (they are rounded to ten decimals)."""
ALPHA = 0.05
"""Significance level of a two-sided test."""
RANDOM_RUN = "the paper's random run"
"""What a score is compared with if exact chance is not known."""
MIN_CASES = 30
"""Numbers based on fewer cases are shown in grey."""
VERDICT_WORDS: dict[Verdict, str] = {
    "better": "significantly better than",
    "no different": "not significantly different from",
    "worse": "significantly worse than",
}
"""Verdict -> words to put before "guessing", in the order of the leaderboard's groups."""
VERDICT_SIGNS: dict[Verdict | None, str] = {
    "better": "▲",
    "no different": "≈",
    "worse": "▼",
    None: "·",
}
"""Verdict -> its sign in tables; None: not tested."""


def verdict_sign(score: Score) -> str:
    """Return the sign of a score's test against chance.

    It is "" for too few independent cases, which `too_few_note` writes out.
    """
    return "" if score.is_small else VERDICT_SIGNS[score.verdict]


def too_few_note(score: Score, case: str) -> str:
    """Return the text shown instead of a sign if there are too few independent cases, else "".

    `case` is what the benchmark calls a case.
    """
    return f"too few independent {case}s" if score.is_small else ""


RANKS_NOTE = "Rank 1 is shared by every model that none significantly beats; click a rank to see why."
"""Explains the column of ranks (`comparisons.RankRanges`)."""
SHADES_NOTE = "Teal: better side of guessing; orange: worse side. The stronger the colour, the larger the difference, up to 50 points"


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence: `A, B and C`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def format_chance(value: float) -> str:
    """Format a level of chance with one digit, or none if it is whole.

    >>> format_chance(25.0), format_chance(22.760196)
    ('25%', '22.8%')
    """
    return f"{number(value).removesuffix('.0')}%"


def sign_legend(verdicts: Collection[Verdict | None], few: bool) -> list[str]:
    """Explain the signs of a table, one line each.

    Args:
        verdicts: The verdicts in the table.
        few: Whether any cell rests on fewer than `MIN_CASES` cases.
    """
    untested = "not tested (chance or n is not known, most responses give no answer, or neither direction is better)"
    return [
        *(
            f"{VERDICT_SIGNS[verdict]} {words} guessing"
            for verdict, words in VERDICT_WORDS.items()
            if verdict in verdicts
        ),
        *([f"{VERDICT_SIGNS[None]} {untested}"] if None in verdicts else []),
        *(["each cell is tested separately, at 95%"] if set(verdicts) - {None} else []),
        *([f"italic grey: fewer than {MIN_CASES} cases, or not known how many"] if few else []),
    ]


def describe_sample_size(score: Score) -> str:
    """Describe a score's n, how many independent units it is worth, and its number of cases."""
    worth = f" (worth {count(score.independent_n)} independent)" if score.independent_n is not None else ""
    return f"n {count(score.n)}{worth}, {plural(score.n_cases, 'case')}" if score.n_cases else "n not known"


def format_basis(score: Score) -> str:
    """Describe what a score is based on, for its tooltip: interval and sample size."""
    has_interval = score.low is not None and score.high is not None
    return f"{f'95% interval {interval(score)}' if has_interval else 'no interval'}, {describe_sample_size(score)}"


def unranked_note(models: int, published: bool, below: bool) -> str:
    """Explain why models have no score on a selection.

    Args:
        models: Number of models.
        published: True if only published numbers of them are known.
        below: True if cells for exactly one of the selected branches are listed in another table.
    """
    them = "it" if models == 1 else "them"
    why = f"this score is not known for {them} in this selection."
    if published:
        why = f"only published numbers are known for {them}, not the underlying answers."
    tail = " Cells for exactly one of the selected branches are listed below." if below else ""
    return f"{plural(models, 'model')} not ranked here: {why}{tail}"


def printed_scores_note(published: int, submitted: int) -> str:
    """Explain why rows of a selection were not computed from answers.

    Args:
        published: Number of printed and recomputed rows.
        submitted: Number of results whose answers cannot be read.
    """
    printed = "Published cells are shown as they are; the answers behind them are not in this store."
    unread = f"{plural(submitted, 'result')} shown with the submitted cell: the answers are not available."
    return " ".join(note for note, n in ((printed, published), (unread, submitted)) if n)


def ends_caption(label: str, n_compared: int, n_left_out: int, against_chance: bool) -> str:
    """Write the caption of the weakest and strongest values of a facet.

    Args:
        label: Name of the score.
        n_compared: Number of values that are ordered.
        n_left_out: Number of values with too few cases.
        against_chance: True if they are ordered by score minus chance.
    """
    order = "score minus what guessing gets" if against_chance else "score"
    few = f" {plural(n_left_out, 'other')} with fewer than {MIN_CASES} cases {'is' if n_left_out == 1 else 'are'} left out."
    caveat = "Extremes of many values look further apart than they are: each interval holds for its own value only."
    compared = f"{label}: the lowest and highest of {count(n_compared)} by {order}."
    return f"{compared}{few if n_left_out else ''} {caveat}"


def explain_ranks(first_rank: int, last_rank: int, models: int) -> str:
    """Explain the ranks that a row may hold (`comparisons.RankRanges`).

    Args:
        first_rank: First rank that it may hold.
        last_rank: Last rank.
        models: Number of models that are ranked.

    >>> explain_ranks(1, 2, 2)
    'Rank 1 to 2: no model is significantly better; 1 model is not significantly different.'
    """
    counts = (
        (first_rank - 1, "better"),
        (models - last_rank, "worse"),
        (last_rank - first_rank, "not significantly different"),
    )
    parts = [
        f"{plural(n, 'model') if n else 'no model'} {'are' if n > 1 else 'is'} "
        f"{word if word.startswith('not') else f'significantly {word}'}"
        for n, word in counts
        if n or word == "better"
    ]
    corrected = f" ({describe_correction(0, models)})" if models > 2 else ""
    return f"Rank {first_rank}{'' if first_rank == last_rank else f' to {last_rank}'}: {'; '.join(parts)}{corrected}."


def describe_correction(tests: int, models: int = 0) -> str:
    """State the correction for multiple comparisons: for a ranking of models, or for a number of
    tests.

    Args:
        tests: Number of tests.
        models: Number of models in the ranking; 0 if there is none.

    >>> describe_correction(15), describe_correction(1)
    ('corrected for 15 comparisons', 'one comparison, not corrected')
    >>> describe_correction(3, 14)
    'corrected for the ranking of 14 models'
    """
    if models:
        return f"corrected for the ranking of {plural(models, 'model')}"
    return f"corrected for {count(tests)} comparisons" if tests > 1 else "one comparison, not corrected"


def multiple_testing_note(tests: int) -> str:
    """Caution that some of many tested scores are marked by chance alone.

    >>> multiple_testing_note(84)
    'Each score is tested by itself: if all 84 were guesses, about 4 would be marked.'
    >>> multiple_testing_note(6)
    'Each score is tested by itself.'
    """
    # The expected number of false positives.
    marked = round(tests * ALPHA)
    by_chance = f": if all {count(tests)} were guesses, about {count(marked)} would be marked" if marked else ""
    return f"Each score is tested by itself{by_chance}."


def substitute_metric_note(section: Section, missing_metric: str, metric: str) -> str:
    """Explain why a selection shows another score than the requested or headline one.

    Args:
        section: The question set.
        missing_metric: The metric that is not known.
        metric: The metric that is shown.
    """
    missing_label, shown_label = (metric_info(name, section.family).label for name in (missing_metric, metric))
    is_printed = all(entry.result.provenance == "published" for entry in section.entries)
    why = "the papers do not print it, and no answers are known" if is_printed else "no result has it"
    return f"{missing_label} is not known for this selection ({why}): {shown_label} is shown."


def format_image_gain(sight: Sight) -> str:
    """Format the points of a score that come from the image, with their interval.

    An end of the interval is never rounded across 0.
    """
    digits = interval_decimals(sight.low, sight.high, 0.0, 0)
    return f"{sight.value:.{digits}f} ({sight.low:.{digits}f} to {sight.high:.{digits}f})"


def image_gain_sentence(questions: str, sight: Sight) -> str:
    """Describe how much of a model's score on a question set comes from the image."""
    return f"{questions}: {format_image_points(sight.score, sight.value, sight.low, sight.high)}"


def format_abstention(abstained: float | None, answered_accuracy: float | None, ends: Sequence[int] = ()) -> str:
    """Describe how many responses chose an option, and how many of those were right.

    Args:
        abstained: Percentage of responses that choose no option.
        answered_accuracy: Percentage of right answers where an option was chosen.
        ends: How the responses ended (`grading.RESPONSE_COUNT_COLUMNS`).

    >>> format_abstention(25.0, 80.0, (28, 5, 1, 0, 0))
    'abstained 25.0% (7 of 28: 5 cut off, 1 failed, 1 refused), accuracy where answered 80.0%'
    >>> format_abstention(0.0, None)
    'abstained 0.0%'
    """
    reasons = _by_reason(round((abstained or 0.0) * ends[0] / 100), ends) if ends else ""
    parts = (
        f"abstained {score_text(abstained)}%{reasons}" if abstained is not None else "",
        f"accuracy where answered {score_text(answered_accuracy)}%" if answered_accuracy is not None else "",
    )
    return ", ".join(filter(None, parts))


REASON_WORDS = {
    "truncated": "cut off",
    "failed": "failed",
    "missing": "missing",
    "irrelevant": "unreadable",
}
"""Why a response chooses no option -> its words in a list of reasons."""


def _by_reason(abstained: int, ends: Sequence[int]) -> str:
    """List the responses that choose no option by reason, in brackets; "" if there are none.

    `ends`: as for `format_abstention`.
    """
    responses, *silent = ends
    counts = [(n, REASON_WORDS[reason]) for reason, n in zip(NONRESPONSE_STATUSES, silent, strict=True)]
    # Other responses without a choice were refusals by the model.
    counts.append((abstained - sum(silent), "refused"))
    reasons = ", ".join(f"{count(n)} {reason}" for n, reason in counts if n)
    return f" ({count(abstained)} of {count(responses)}: {reasons})" if reasons else ""


def no_score_reason(score: Score, result: Result) -> str:
    """Explain why a score has no verdict and no rank, and perhaps no value; "" if it may have them.

    Args:
        score: The score.
        result: Its result.
    """
    why = untested_reason(score, result, board_spec(result.benchmark.family).case)
    lead = "" if score.nonresponse is None else "no score: " if score.value is None else "no verdict: "
    return f"{lead}{why}"


def format_month(date: str) -> str:
    """Format a date YYYY-MM or YYYY-MM-DD as month and year; other texts are returned unchanged.

    >>> format_month("2024-05"), format_month("2024-08-06"), format_month("soon")
    ('May 2024', 'August 2024', 'soon')
    """
    try:
        return datetime.strptime(date[:7], "%Y-%m").strftime("%B %Y")
    except ValueError:
        return date


def format_verdict(verdict: Verdict | None, guess: str, chance: float | None) -> str:
    """Format a verdict for a table's cell, with what guessing gets.

    Args:
        verdict: The verdict.
        guess: RANDOM_RUN, or what exact chance is called.
        chance: What guessing gets, in percent.
    """
    if verdict is not None:
        return f"{VERDICT_WORDS[verdict]} {guess}{'' if chance is None else f' ({format_chance(chance)})'}"
    return "not tested" if chance is None else f"not tested; {guess} gets {format_chance(chance)}"


def exposure_note(published: str | None, released: str | None) -> str:
    """State whether a set's questions were public before a model was released.

    The model may then have seen them in training. Dates are compared by month.

    Args:
        published: Date of the questions, YYYY-MM or YYYY-MM-DD.
        released: Date of the model.
    """
    if not published or not released:
        return ""
    order = "before" if published[:7] < released[:7] else "after"
    model = f"{order} this model ({format_month(released[:7])})"
    return f"questions public in {format_month(published[:7])}, {'the month of this model' if published[:7] == released[:7] else model}"


def comparison_headline(
    name_a: str,
    name_b: str,
    label: str,
    higher_is_better: bool | None,
    difference: float,
    p: float,
    corrected: float,
) -> str:
    """State the finding of a test of two results.

    Args:
        name_a: Name of a result.
        name_b: Name of the other.
        label: Name of the score.
        higher_is_better: Direction of the score; None if it has none.
        difference: first - second, in points.
        p: Two-sided p-value of this test alone.
        corrected: The p-value corrected for the ranking, which decides whether the finding is
            called significant.
    """
    # Equal scores do not differ, no matter how small p is.
    if p >= ALPHA or abs(difference) <= EQUAL_TOLERANCE:
        return f"{name_a} and {name_b} do not differ significantly in {uncapitalize(label)}."
    word = {True: "better than", False: "worse than", None: "above"}[higher_is_better]
    # Name the higher score first, whichever is better.
    upper, lower = (name_a, name_b) if difference > 0 else (name_b, name_a)
    lead, tail = ("significantly ", "") if corrected < ALPHA else ("", ", but not significantly in the ranking")
    return f"{upper} is {lead}{word} {lower} by {number(abs(difference))} points of {uncapitalize(label)}{tail}."


def uncapitalize(label: str) -> str:
    """Return a score's name for use within a sentence.

    >>> uncapitalize("Wrong image: picks “I do not know”")
    'wrong image: picks “I do not know”'
    """
    return label[:1].lower() + label[1:]


EXAMPLE_NOTE = "Example pair. Choose your own above."
"""Note above two results that the visitor did not choose."""


def format_difference_interval(low: float, high: float) -> str:
    """Format the interval of a difference; no end is rounded across 0.

    Args:
        low: Lower end, in points.
        high: Upper end.

    >>> format_difference_interval(-0.3, 5.14), format_difference_interval(0.03, 5.14)
    ('−0.3 to 5.1', '0.03 to 5.14')
    """
    # As many digits as it takes to show on which side of 0 each end is.
    digits = interval_decimals(low, high, 0.0)
    return f"{number(low, digits)} to {number(high, digits)}"


def ranking_significance(corrected: float, models: int) -> str:
    """State whether a pair's difference is significant after the leaderboard's correction.

    Args:
        corrected: The corrected p-value.
        models: Number of models that it ranks; 0 if it does not rank both.

    >>> ranking_significance(0.3, 14)
    'Corrected for the ranking of 14 models: p = 0.300, not significant.'
    """
    if not models:
        return "Not corrected for other comparisons that you may have looked at."
    word = "significant" if corrected < ALPHA else "not significant"
    return f"{describe_correction(0, models).capitalize()}: {format_p_value(corrected)}, {word}."


def paired_test_details(
    upper: str,
    lower: str,
    difference: float,
    low: float,
    high: float,
    p: float,
    method: str,
    counts: tuple[int, int, int],
    case: str,
) -> str:
    """Write the text below the finding of a paired test.

    Args:
        upper: Name of a result.
        lower: Name of the other, `difference` points below it.
        difference: Difference in points.
        low: Lower end of its 95 % interval.
        high: Upper end.
        p: Two-sided p-value.
        method: Name of the test.
        counts: Number of units on which `upper` scored more, on which `lower` did, and on which
            both did alike.
        case: What a unit is called.
    """
    upper_wins, lower_wins, ties = counts
    return (
        f"Difference {number(difference)} points (95% interval {format_difference_interval(low, high)}; {format_p_value(p)}, {method}). "
        f"{upper} scored more on {plural(upper_wins, case)}, {lower} on {count(lower_wins)}; {count(ties)} were alike."
    )


def unpaired_test_details(difference: float, low: float, high: float, p: float) -> str:
    """Write the text below the finding of a test of two printed numbers.

    The parameters are those of `paired_test_details`.
    """
    interval_ends = format_difference_interval(low, high)
    unpaired = "unpaired: only the published scores are known, not the answers"
    return f"Difference {number(difference)} points (95% interval {interval_ends}; {format_p_value(p)}, {unpaired})."


def pairs_headline(significant: int, pairs: int, label: str) -> str:
    """State the finding of a comparison of more than two results.

    Args:
        significant: Number of pairs that differ significantly.
        pairs: Number of pairs.
        label: Name of the score.
    """
    many = in_words(significant).capitalize() if significant else "None"
    verb = "differs" if significant < 2 else "differ"
    return f"{many} of {plural(pairs, 'pair')} {verb} significantly in {uncapitalize(label)}."


def pairs_test_note(paired: int, unpaired: int, models: int) -> str:
    """Explain how the pairs of a comparison were tested, and what they are corrected for.

    Args:
        paired: Number of pairs tested on the same answers.
        unpaired: Number of pairs tested by their scores.
        models: Number of models in the ranking that they are corrected for; 0 for the pairs alone.
    """
    tests = (
        (paired, "on the same answers (paired)"),
        (unpaired, "by the scores alone (unpaired, assumed independent)"),
    )
    parts = [f"{plural(n, 'pair')} {method}" for n, method in tests if n]
    marks = f"Significance is {describe_correction(paired + unpaired, models)}"
    return f"Tested: {' and '.join(parts)}. {marks}; intervals and the p-values beside them are not corrected."


def format_p_value(p: float) -> str:
    """Format a p-value with three digits.

    >>> format_p_value(0.0004), format_p_value(0.0495), format_p_value(1.0)
    ('p < 0.001', 'p = 0.050 (under 0.05)', 'p = 1.000')
    """
    # 0.0495 is rounded to 0.050, which would look not significant.
    rounded = f"p = {p:.3f}" if p >= 0.001 else "p < 0.001"
    return f"{rounded} (under 0.05)" if p < ALPHA and rounded == "p = 0.050" else rounded


FIRST_SAMPLE_NOTE = "Of results with several samples per question, the first is shown."
"""Note above answers if only one of several samples is shown."""


def flips_caption(name_a: str, name_b: str, units: int, cases: int, n_shown: int) -> str:
    """Write the caption of the cases on which two results differ.

    Args:
        name_a: Name of a result.
        name_b: Name of the other.
        units: Number of scored units on which they differ.
        cases: Number of cases.
        n_shown: Number of cases that are drawn.
    """
    differ = f"{name_a} and {name_b} differ on {plural(units, 'scored unit')} in {plural(cases, 'case')}"
    part = f"; the first {count(n_shown)} are shown, the saved files contain all" if n_shown < cases else ""
    return f"{differ}{part}. Each option is followed by the results that chose it."


def case_list_headline(cases: int, searched: bool) -> str:
    """Write the headline of a list of cases.

    Args:
        cases: Number of cases.
        searched: Whether a search or filter left out other cases.
    """
    match = f" {'matches' if cases == 1 else 'match'}" if searched else ""
    return f"{plural(cases, 'case')}{match}."


def case_headline(right: int, wrong: int, scored: int) -> str:
    """Write the headline of a case.

    Args:
        right: Number of results that got all of it right.
        wrong: Number that got nothing right.
        scored: Number that are scored on it.
    """
    if not scored:
        return "No result is scored on this case."
    partly = scored - right - wrong
    in_part = f", {count(partly)} in part" if partly else ""
    return f"{count(right)} of {plural(scored, 'result')} scored this case in full{in_part}."
