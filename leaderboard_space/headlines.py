"""Write the headlines of pages from numbers alone: which model scores highest, which may be as
good, how many beat guessing; and the caption of a table of results.

See also: sentences on single numbers (`sentences.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.records.result import Score, Verdict
from leaderboard_space.benchmarks import board_spec, method_name, metric_info
from leaderboard_space.data.published_results import is_random_run
from leaderboard_space.data.sections import Row, display_names
from leaderboard_space.data.standings import Standings
from leaderboard_space.data.tree import TreePath, selection_group_names
from leaderboard_space.html import count, in_words, plural, score_text
from leaderboard_space.sentences import EQUAL_TOLERANCE, RANDOM_RUN, format_chance, join_names

MAX_NAMES = 3
"""Maximum number of models that a sentence names; if there are more, it states their number."""


@dataclass(frozen=True)
class RankedModel:
    """A ranked row, as headlines see it.

    Args:
        name: Name of the model or result.
        value: Its score.
        verdict: Its test against guessing; None if chance is not known.
        first: Best rank that it may hold; 0 without ranks.
    """

    name: str
    value: float
    verdict: Verdict | None
    first: int


@dataclass(frozen=True)
class HeadlineFacts:
    """The numbers behind a headline.

    Args:
        about: Name of the score; "" for a benchmark's headline metric, which needs none.
        guess: What chance is called ("guessing").
        ranked: Ranked rows, best first.
        are_models: True if no two rows are the same model; otherwise rows are called results.
        higher: True if higher scores are better.
        baselines: Number of baselines with a score.
        uncounted: Number of results whose score is undefined here.
        small: Number of models with too few independent cases.
        partial: Number of results known only for other selections.
        apart: Number of results that are shown but not ranked with the others.
        case: What the benchmark calls a case.
        unit: Unit of the score, as `MetricInfo.unit`.
    """

    about: str
    guess: str
    ranked: tuple[RankedModel, ...]
    are_models: bool = True
    higher: bool = True
    baselines: int = 0
    uncounted: int = 0
    small: int = 0
    partial: int = 0
    apart: int = 0
    case: str = "case"
    unit: str = "percent"

    @property
    def plural(self) -> str:
        """What several rows are called."""
        return "models" if self.are_models else "results"


@dataclass(frozen=True)
class TrustCounts:
    """The numbers behind the first sentence of the board.

    Args:
        task: What the benchmark asks models to do.
        models: Number of models tested against guessing.
        better: Number significantly better.
        worse: Number significantly worse.
        guess: What chance is called.
    """

    task: str
    models: int
    better: int
    worse: int
    guess: str


def board_headline(numbers: TrustCounts | None) -> str:
    """Write the first sentence of the board.

     board_headline(TrustCounts("tell two images apart", 14, 0, 9, "a coin flip"))
    'Not yet. Of 14 models asked to tell two images apart, none beats a coin flip; nine do worse.'
    """
    if numbers is None:
        return "No model here has been tested against guessing yet."
    asked_to, better = f"asked to {numbers.task}", numbers.better
    if numbers.models == 1:
        verb = "beats" if better else "does worse than" if numbers.worse else "does not beat"
        return f"The one model {asked_to} {verb} {numbers.guess}."
    if better == numbers.models:
        return f"All {in_words(better)} models {asked_to} beat {numbers.guess}."
    beat = f"{in_words(better) if better else 'none'} beat{'s' if better < 2 else ''} {numbers.guess}"
    worse = _worse(numbers.worse, numbers.models)
    return f"{'' if better else 'Not yet. '}Of {count(numbers.models)} models {asked_to}, {beat}{worse}."


def _worse(worse: int, total: int) -> str:
    """Say how many do worse than guessing, to end a sentence on how many beat it; "" if none
    does.
    """
    many = "all" if worse == total else in_words(worse)
    return f"; {many} {'does' if worse == 1 else 'do'} worse" if worse else ""


def compose_headline(facts: HeadlineFacts) -> str:
    """Write the main finding: who scores highest, who may be as good, how many beat guessing."""
    parts = (facts.about and f"{facts.about}.", _leader(facts), _against_chance(facts))
    return " ".join(filter(None, parts))


def _nothing(facts: HeadlineFacts) -> str:
    """Explain why nothing is ranked."""
    hidden = "The answer key of these questions is hidden, or none of them counts towards this score."
    small = f"Too few independent {facts.case}s to compare the {plural(facts.small, 'model')} here."
    reasons = (
        (facts.uncounted and not facts.baselines, hidden),
        (facts.small, small),
        (facts.baselines, "Only baselines and people have this score here."),
        (
            facts.apart,
            f"Nothing is ranked here: {plural(facts.apart, 'result')} below, with the reason.",
        ),
        (facts.partial, "Known for parts of this selection, not for all of it."),
    )
    return next((reason for applies, reason in reasons if applies), "No results for this selection.")


def _leader(facts: HeadlineFacts) -> str:
    """Say who has the best score, and who else may be the best."""
    if not facts.ranked:
        return _nothing(facts)
    best, many = facts.ranked[0], facts.plural
    value = score_text(best.value, facts.unit) + ("%" if facts.unit == "percent" else "")
    if len(facts.ranked) == 1:
        return f"{best.name} scores {value}."
    # Ties: naming one of several equal leaders would claim too much.
    equal = [row for row in facts.ranked if abs(row.value - best.value) <= EQUAL_TOLERANCE]
    if len(equal) == len(facts.ranked):
        return f"{'Both' if len(equal) == 2 else f'All {in_words(len(equal))}'} {many} score {value}."
    leaders = _few([row.name for row in equal], many)
    leaders = leaders if equal[0].name in leaders else leaders.capitalize()  # a model's name stays as it is
    verb, end = "scores" if len(equal) == 1 else "score", "highest" if facts.higher else "lowest"
    return f"{leaders} {verb} {end} ({value}){_rivals([row for row in facts.ranked if row not in equal])}."


def _rivals(rows: Sequence[RankedModel]) -> str:
    """Say which rows below the leader may be as good, as the end of a sentence; "" if none."""
    rivals = [row.name for row in rows if row.first == 1]
    return f"; {_few(rivals, 'others')} may be as good" if rivals else ""


def _few(names: Sequence[str], many: str) -> str:
    """List up to `MAX_NAMES` names; if there are more, state their number ("four models").

    `many` is the noun that follows the number.
    """
    return join_names(names) if len(set(names)) == len(names) <= MAX_NAMES else f"{in_words(len(names))} {many}"


def _against_chance(facts: HeadlineFacts) -> str:
    """Say how many rows beat guessing; "" if most of them are not tested."""
    verdicts = [row.verdict for row in facts.ranked if row.verdict is not None]
    better, total = verdicts.count("better"), len(verdicts)
    # A count over a minority of the rows would be read as a count over all of them.
    if 2 * total < len(facts.ranked) or not verdicts:
        return ""
    if total == 1:
        verb = {"better": "beats", "worse": "does worse than"}.get(verdicts[0], "does not beat")
        return f"It {verb} {facts.guess}."
    if better == total:
        return f"{'Both' if total == 2 else 'All'} beat {facts.guess}."
    lead = f"{in_words(better).capitalize()} of {in_words(total)} {facts.plural} beat{'s' if better == 1 else ''}"
    if not better:
        lead = f"{'Neither' if total == 2 else 'None'} beats"
    return f"{lead} {facts.guess}{_worse(verdicts.count('worse'), total)}."


def empty_selection_headline(names: Sequence[str], labelled: bool, unprinted: Sequence[str] = ()) -> str:
    """Explain why a selection of several facets has no result.

    Args:
        names: The selected labels.
        labelled: True if the questions are known, and none has all of the labels.
        unprinted: Facets by which the paper prints no scores.

    >>> empty_selection_headline(["Ophthalmology", "Microscopy"], True)
    'No question is labelled both Ophthalmology and Microscopy.'
    >>> empty_selection_headline(["Ophthalmology", "Disease Diagnosis"], False)
    'The paper reports Ophthalmology and Disease Diagnosis separately.'
    >>> empty_selection_headline(["Ophthalmology", "MRI"], False, ["Modality"])
    'The paper prints no scores by modality, so none for Ophthalmology and MRI together.'
    >>> empty_selection_headline(["MRI"], False, ["Modality"])
    'The paper prints no scores by modality; measured results will have them.'
    """
    if unprinted:
        tail = f", so none for {join_names(names)} together" if len(names) > 1 else "; measured results will have them"
        return f"The paper prints no scores by {join_names(unprinted).lower()}{tail}."
    both_word = "both " if len(names) == 2 else ""
    no_question = f"No question is labelled {both_word}{join_names(names)}."
    return no_question if labelled else f"The paper reports {join_names(names)} separately."


def aspects_headline(label: str, aspects: Sequence[tuple[str, Sequence[RankedModel]]]) -> str:
    """Write the headline of a label that is scored in several aspects.

    Args:
        label: The label.
        aspects: What a model does to earn each score ("says where"), and its ranked models, best
            first.

    >>> poor, good = RankedModel("A", 25.0, "worse", 1), RankedModel("B", 78.6, "better", 1)
    >>> aspects_headline("Brain MRI", [("says what is wrong", [poor]), ("says where", [poor])])
    'On brain MRI, no model says what is wrong or says where better than guessing.'
    >>> aspects_headline("Brain MRI", [("says where", [poor]), ("finds it", [good])])
    'On brain MRI, no model says where better than guessing. B finds it most often (78.6%).'
    """
    # An aspect without a tested model is mentioned in neither part of the sentence.
    verdicts = {does: {row.verdict for row in rows} - {None} for does, rows in aspects}
    none_better = [does for does, of_aspect in verdicts.items() if of_aspect and "better" not in of_aspect]
    parts = [f"no model {' or '.join(none_better)} better than guessing"] if none_better else []
    parts += [
        f"{rows[0].name} {does} most often ({score_text(rows[0].value)}%{_rivals(rows[1:])})"
        for does, rows in aspects
        if rows and does not in none_better
    ]
    if not parts:
        return f"{label}: too few independent cases to compare models."
    return f"On {_in_small_letters(label)}, {'. '.join(parts)}."


def _in_small_letters(label: str) -> str:
    """Lower-case a label for use within a sentence; abbreviations keep their capitals.

    >>> [_in_small_letters(label) for label in ("Nuclear Medicine", "Chest X-ray", "Brain MRI")]
    ['nuclear medicine', 'chest X-ray', 'brain MRI']
    """
    return " ".join(word.lower() if word.isalpha() and word == word.capitalize() else word for word in label.split(" "))


def model_headline(name: str, verdicts: Sequence[tuple[str, Verdict | None]]) -> str:
    """Write the headline of a model's page: its verdict in each benchmark.

    Args:
        name: Name of the model.
        verdicts: Benchmark, and the verdict of the model's first score there.

    >>> model_headline("M", [("A", "better"), ("B", "better"), ("C", None)])
    'M beats guessing on A and B; is not tested on C.'
    """
    words: dict[Verdict | None, str] = {
        "better": "beats guessing on",
        "no different": "does no better than guessing on",
        "worse": "does worse than guessing on",
        None: "is not tested on",
    }
    places = {
        verdict: [benchmark for benchmark, own_verdict in verdicts if own_verdict == verdict] for verdict in words
    }
    parts = [f"{verb} {join_names(places[verdict])}" for verdict, verb in words.items() if places[verdict]]
    return f"{name} {'; '.join(parts)}." if parts else f"This board has no ranked result of {name}."


def weakest_spot_sentence(label: str, benchmark: str, score: Score, metric: str = "") -> str:
    """Describe the weakest spot of a model in a sentence.

    Args:
        label: What the model was tested on.
        benchmark: The benchmark.
        score: Its score there.
        metric: Name of the score, if `label` does not say it.

    >>> score = Score(value=24.1, n=9, n_cases=9, chance=36.6)
    >>> weakest_spot_sentence("says where", "ProbMed", score)
    'Weakest: “says where” in ProbMed, 24.1% where guessing gets 36.6%.'
    >>> weakest_spot_sentence("brain MRI", "ProbMed", score, "abnormality")
    'Weakest: “brain MRI” in ProbMed, abnormality 24.1% where guessing gets 36.6%.'
    """
    measured = f"{metric} {score_text(score.value)}".strip()
    return f"Weakest: “{label}” in {benchmark}, {measured}% where guessing gets {format_chance(score.chance or 0.0)}."


def chance_name(family: str, metric: str) -> str:
    """Return what chance is called in a sentence about this metric."""
    return board_spec(family).guesses.get(metric, "guessing")


def comparator_name(row: Row, family: str, metric: str) -> str:
    """Return what a row is compared with: the paper's random run, or what chance is called.

    Args:
        row: The row.
        family: Key of the benchmark.
        metric: The score.
    """
    return chance_name(family, metric) if row.run is None else RANDOM_RUN


def ranked_models(standings: Standings) -> tuple[RankedModel, ...]:
    """List the models that can be compared, best first."""
    names = display_names([row.entry for row in standings.models])
    return tuple(
        RankedModel(names[row.entry.key], row.score.value or 0.0, row.score.verdict, row.best_rank or 0)
        for row in standings.models
        if not row.score.is_small
    )


def leaderboard_headline(family: str, standings: Standings) -> str:
    """Write the headline of a table of results. Baselines never count as models.

    Args:
        family: Key of the benchmark.
        standings: The rows of the table.
    """
    models, info = standings.models, metric_info(standings.metric, family)
    # If every test is against the paper's random run, the sentence must say so.
    tested = [row for row in models if row.score.verdict is not None]
    in_ranking = [row for row in standings.rows if row.group == "ranked"]
    return compose_headline(
        HeadlineFacts(
            about="" if standings.metric == HEADLINE_METRICS.get(family) else info.label,
            guess=RANDOM_RUN if tested and all(row.run for row in tested) else chance_name(family, standings.metric),
            ranked=ranked_models(standings),
            are_models=len({row.entry.result.model.name for row in models}) == len(models),
            higher=info.higher_is_better is not False,
            baselines=sum(row.is_reference and row.score.value is not None for row in in_ranking),
            uncounted=sum(row.score.value is None for row in in_ranking),
            small=sum(row.score.is_small for row in models),
            apart=len(standings.rows) - len(in_ranking),
            partial=len(standings.hidden),
            case=board_spec(family).case,
            unit=info.unit,
        )
    )


def leaderboard_caption(family: str, standings: Standings, branches: Sequence[TreePath]) -> str:
    """Write the text below a table's headline: score, number of cases, selection, and chart marks.

    Args:
        family: Key of the benchmark.
        standings: The rows of the table.
        branches: The selection.
    """
    info, case = metric_info(standings.metric, family), board_spec(family).case
    scores = [row.score for row in standings.rows if row.score.value is not None]
    sizes = {(score.n, score.n_cases) for score in scores}
    # Results on the same questions may have different n (published tables): then no size is stated.
    n, n_cases = sizes.pop() if len(sizes) == 1 else (0, 0)
    size = plural(n, case) if n == n_cases else f"{count(n)} from {plural(n_cases, case)}"
    groups = selection_group_names(branches)
    # "A or B and C" would be ambiguous.
    names = [f"({name})" if " or " in name and len(groups) > 1 else name for name in groups]
    methods = {method_name(row.entry.result.method.name) for row in standings.rows if not row.is_reference}
    parts = (
        f"{info.label}: {info.description[:1].lower()}{info.description[1:]}" if info.description else f"{info.label}.",
        f"n = {size}." if n_cases else "",
        f"Only {' and '.join(names)}." if names else "",
        f"Method: {methods.pop()}." if len(methods) == 1 else "",
        f"{_chart(standings, scores)}." if scores else "",
        "Lower is better." if info.higher_is_better is False else "",
    )
    return " ".join(filter(None, parts))


def _chart(standings: Standings, scores: Sequence[Score]) -> str:
    """Explain the marks of the chart."""
    with_interval = [score.low is not None and score.high is not None for score in scores]
    bars = "; bars: 95% intervals" + ("" if all(with_interval) else " where known") if any(with_interval) else ""
    levels = {round(score.chance, 6) for score in scores if score.chance is not None}
    tested = [row for row in standings.rows if row.score.chance is not None]
    guess = f"guessing ({format_chance(next(iter(levels)))})" if len(levels) == 1 else "guessing, which differs by row"
    where_known = " where known" if any(score.chance is None for score in scores) else ""
    marks = f"; dashed{where_known}: {guess}"
    # A paper's random run is a sample with an interval, so it is drawn as a band, not as a line.
    if all(row.run is not None or is_random_run(row.entry.result) for row in tested):
        marks = f"; band: {RANDOM_RUN}, a sample of guessing, with its interval"
    return f"Dots: scores{bars}{marks if levels else ''}"
