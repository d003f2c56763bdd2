"""Say what each difference between two results is worth, in points of a score.

Everything that the stored answers determine is exchanged between the two results and derived again:
the questions asked, the key, the reader, lost and refused answers, the judge, and slips in a file.
What several factors are worth together is divided by Shapley (1953): a factor's points are the mean
change of the score over all orders in which the factors can be exchanged, so they add up to the
difference. The last factor is the answers themselves.

See also: slips (`slips.py`), differences of two results as tables (`comparison.py`), docs/why.md.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, combinations
from math import factorial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import binomtest

from dataset_builders.errors import BadInput
from dataset_builders.fingerprints import SCORED_COLUMNS
from eval_harness.benchmarks import eval_spec
from eval_harness.derive.metrics import HEADLINE_METRICS
from eval_harness.derive.reading import read_due_answers, with_judge
from eval_harness.derive.run_files import ANSWER_TABLE_COLUMNS
from eval_harness.records.result import RunRecord, RunRequest
from eval_harness.scores.comparisons import paired_test
from eval_harness.scores.grading import grade, image_clusters
from eval_harness.store.comparison import Side, check_same_format, format_p_value
from eval_harness.store.formatting import metric_unit
from eval_harness.store.slips import (
    UNREAD,
    Positions,
    Slip,
    apply_order,
    find_slips,
    named_position,
)

QUESTIONS, KEY, READER, REFUSED, JUDGE = "questions asked", "key", "reader", "refused answers", "judge"
LOST = "answers cut off, failed or missing"
ANSWERS = "different answers"
OLD_SCORE = "another version of medprobe or of the key"
"""A stored score differs from the one that its stored answers give now."""
MAX_REFUSAL_P = 0.01
"""Refusing is behaviour of a model: refusals are a factor only if one side refuses significantly
more often (sign test), otherwise they are different answers.
"""
MAX_AGREEMENT = 0.95
"""Slips are looked for unless more of the choices agree."""
MIN_DRIFT_POINTS = 1e-6
"""A stored score that differs by less is the derived one."""
LOST_WORDS = {"truncated": "cut off", "failed": "failed", "missing": "missing"}
Readings = NDArray[np.object_]
"""(choice, status) of each answer (questions, samples)."""
Kinds = NDArray[np.object_]
"""Factor that each answer belongs to (questions of A, samples that both have)."""


@dataclass(frozen=True)
class Cause:
    """One reason for a difference.

    Attributes:
        factor: What differs.
        points: What it contributes to A - B, in percentage points; 0 until that is computed.
        answers: Number of answers that it concerns (of questions, for `questions asked` and `key`).
        detail: On which side, or the p-value of a slip.
    """

    factor: str
    points: float
    answers: int
    detail: str = ""


@dataclass(frozen=True)
class Explanation:
    """Why the scores of two results differ, or a score and a printed number.

    Attributes:
        metric: Name of the score.
        a: Score of the first result, in percent.
        b: Score of the second, or the printed number.
        causes: Causes with points, the largest first; with `different_points` they add up to a - b.
            For a printed number, each factor that alone brings the score within its rounding.
        different_points: Points that are left to different answers.
        low: Lower end of their 95 % interval.
        high: Upper end.
        n_different: Number of answers that choose differently.
        chance: Only for a printed number: percent of the numbers with as many decimals, close to
            it (`cause_report.CHANCE_RANGE`), that some factor would match.
    """

    metric: str
    a: float
    b: float
    causes: list[Cause]
    different_points: float = 0.0
    low: float = 0.0
    high: float = 0.0
    n_different: int = 0
    chance: float | None = None


@dataclass
class Aligned:
    """Two sides, with the options of the second in the order of the first.

    Attributes:
        sides: A and B.
        runs: Their run records, as far as reading needs them.
        metric: The score to explain.
        questions: Their questions; one that has changed has another id in B.
        own_questions: The same questions as each side's answers name them, with its own options.
        maps: Per question of B, the position in A's order of each option.
        rows: Per side, question id -> row.
        slip: The slip, if one was found.
        tables: Cache of `read_side_answers`.
        readings: Cache of `_read`.
    """

    sides: tuple[Side, Side]
    runs: tuple[RunRecord, RunRecord]
    metric: str
    questions: tuple[pd.DataFrame, pd.DataFrame]
    own_questions: tuple[pd.DataFrame, pd.DataFrame]
    maps: list[list[int]]
    rows: tuple[dict[str, int], dict[str, int]]
    slip: Slip | None = None
    tables: dict[tuple[int, str, int, int], pd.DataFrame] = field(default_factory=dict)
    readings: dict[tuple[int, str, int], Readings] = field(default_factory=dict)

    @property
    def common(self) -> list[str]:
        """Ids of the questions of both sides, in A's order."""
        return [name for name in self.rows[0] if name in self.rows[1]]

    @property
    def extractions(self) -> list[str]:
        """Reader of each side."""
        return [run.method.extraction or "ours" for run in self.runs]


def explain(a: Side, b: Side, metric: str | None = None) -> Explanation:
    """Say what each difference between two results is worth.

    Args:
        a: The first result, with answers and questions.
        b: The second, on the same benchmark.
        metric: The score to explain; None for the benchmark's headline score.

    Returns:
        The causes and what is left to different answers.

    Raises:
        BadInput: A side has no answers, they have no question in common, or the score is unknown.
    """
    aligned = align_questions(a, b, metric or HEADLINE_METRICS[a.result.benchmark.family])
    slip, slip_causes = _find_slip(aligned)
    aligned = replace(aligned, slip=slip, readings={})
    factors, kinds = find_factors(aligned)
    players = [*factors, ANSWERS]
    tables = {
        changed: hybrid_units(aligned, kinds, changed)
        for size in range(len(players) + 1)
        for changed in map(frozenset[str], combinations(players, size))
    }
    if any(units["denominator"].sum() <= 0 for units in tables.values()):
        raise BadInput(f"no question counts towards {aligned.metric}, or the answer key is hidden.")
    values = {changed: score_of_units(units) for changed, units in tables.items()}
    points = {name: _shapley(name, players, values) for name in players}
    slip_points = sum(cause.points for cause in slip_causes)
    now_a = values[frozenset()] + (slip_points if slip and slip.side == 0 else 0)
    now_b = values[frozenset(players)] - (slip_points if slip and slip.side == 1 else 0)
    stored_a, stored_b = (score.value if (score := side.result.scores.get(aligned.metric)) else None for side in (a, b))
    value_a, value_b = now_a if stored_a is None else stored_a, now_b if stored_b is None else stored_b
    n_different = _count_different(aligned, kinds)
    low = high = points[ANSWERS]
    if n_different:
        low, high = _interval(aligned, players, tables)
    causes = slip_causes + [
        replace(
            factor,
            points=points[key],
            detail=_with_changes(factor.detail, tables[frozenset()], tables[frozenset([key])]),
        )
        for key, factor in factors.items()
    ]
    drift = (value_a - now_a) - (value_b - now_b)
    if abs(drift) > MIN_DRIFT_POINTS:
        causes.append(Cause(OLD_SCORE, drift, 0))
    causes.sort(key=lambda cause: -abs(cause.points))
    return Explanation(aligned.metric, value_a, value_b, causes, points[ANSWERS], low, high, n_different)


def _with_changes(detail: str, units_a: pd.DataFrame, units_b: pd.DataFrame) -> str:
    """Append to a detail how many units score more with A's value of a factor, and with B's."""
    pairs = units_a.merge(units_b, on="unit")
    change = pairs["numerator_y"] - pairs["numerator_x"]
    counts = {"right only with A's": int((change < 0).sum()), "only with B's": int((change > 0).sum())}
    return ", ".join(filter(None, [detail, *(f"{name}: {count:,}" for name, count in counts.items() if count)]))


def align_questions(a: Side, b: Side, metric: str) -> Aligned:
    """Bring two sides to common questions with one order of options."""
    check_same_format(a, b)
    for side in (a, b):
        if not side.has_answers or "delivery" not in side.answers.columns:
            raise BadInput(f"{side.source}: has no answers, so its difference from the other side cannot be explained.")
    if metric not in eval_spec(a.result.benchmark.family).metrics or metric_unit(metric) != "percent":
        raise BadInput(f"{metric}: not a score of {a.result.benchmark.family} in percent.")
    own_frames = tuple(
        side.questions.assign(question_id=side.questions["question_id"].astype(str)).reset_index(drop=True)
        for side in (a, b)
    )
    contents = [
        {row["question_id"]: (str(row["question"]).strip(), list(row["options"])) for row in frame.to_dict("records")}
        for frame in own_frames
    ]
    ids, maps, options, keys = [], [], [], []
    for name, key in zip(own_frames[1]["question_id"], own_frames[1]["answer"], strict=True):
        (text, texts), (other_text, other_texts) = contents[1][name], contents[0].get(name, contents[1][name])
        # Another text under the same id is another question.
        is_same = text == other_text and sorted(texts) == sorted(other_texts) and len(set(texts)) == len(texts)
        is_same = is_same or (text, texts) == (other_text, other_texts)
        order = [other_texts.index(option) for option in texts] if is_same else list(range(len(texts)))
        order = order if len(set(order)) == len(order) else list(range(len(texts)))
        ids.append(name if is_same else f"{name} (in B)")
        maps.append(order)
        options.append(other_texts if is_same else texts)
        keys.append([order[int(at)] for at in key])
    frame_b = own_frames[1].assign(
        question_id=ids, options=pd.Series(options, dtype=object), answer=pd.Series(keys, dtype=object)
    )
    rows = tuple({name: row for row, name in enumerate(frame["question_id"])} for frame in (own_frames[0], frame_b))
    aligned = Aligned((a, b), (_run_of(a), _run_of(b)), metric, (own_frames[0], frame_b), own_frames, maps, rows)  # type: ignore[arg-type]
    if not aligned.common:
        raise BadInput(f"{a.source} and {b.source} have no question in common, so their difference has no known cause.")
    return aligned


def _run_of(side: Side) -> RunRecord:
    """Return the run record of a result, as far as reading its answers needs it."""
    result, method = side.result, side.result.method
    request = RunRequest(
        benchmark=result.benchmark.name,
        data="",
        split=result.benchmark.split,
        fingerprint="",
        model="",
        method=method.name,
        prompt=None,
        samples=1 + int(side.answers["sample"].max()),
        generation={},
        permute=bool(method.generation.get("permute")),
    )
    return RunRecord(
        run_id="", request=request, benchmark=result.benchmark, model=result.model, method=method, created_at=""
    )


def read_side_answers(aligned: Aligned, x: int, extraction: str, judge: int, shift: int = 0) -> pd.DataFrame:
    """Read the answers of side `x` with a reader and the judge of a side, moved by `shift` rows.

    One row per question and sample.
    """
    key = (x, extraction, judge, shift)
    if key not in aligned.tables:
        run, questions, answers = aligned.runs[x], aligned.own_questions[x], aligned.sides[x].answers
        run = run.model_copy(update={"method": run.method.model_copy(update={"extraction": extraction})})
        run = with_judge(run, aligned.runs[judge].method.judge or None)
        ids = questions["question_id"].tolist()
        moved = dict(zip(ids, np.roll(ids, -shift).tolist(), strict=True))
        answers = answers.reindex(columns=ANSWER_TABLE_COLUMNS).assign(question_id=answers["question_id"].map(moved))
        aligned.tables[key] = read_due_answers(run, answers, questions, _replies(aligned, x, judge))[0]
    return aligned.tables[key]


def _replies(aligned: Aligned, x: int, judge: int) -> pd.DataFrame | None:
    """Return the replies of a side's judge about the answers of side `x`.

    The other side's judge has read only the answers that both sides gave; about the rest, the own
    judge's replies stand.
    """
    own_replies, other_replies = aligned.sides[x].replies, aligned.sides[judge].replies
    if judge == x or other_replies is None:
        return own_replies
    keys = ["question_id", "sample"]
    answers, other_answers = (aligned.sides[side].answers[[*keys, "response"]] for side in (x, judge))
    common_texts = answers.merge(other_answers, on=[*keys, "response"])[keys]
    replies = [*([] if own_replies is None else [own_replies]), other_replies.merge(common_texts, on=keys)]
    return pd.concat(replies).drop_duplicates(keys, keep="last")


def _read(aligned: Aligned, x: int, extraction: str, judge: int) -> Readings:
    """Return how the answers of side `x` are read, its slip undone, with choices in A's order of
    options.
    """
    key = (x, extraction, judge)
    if key in aligned.readings:
        return aligned.readings[key]
    slip = aligned.slip if aligned.slip is not None and aligned.slip.side == x else None
    table = read_side_answers(aligned, x, extraction, judge, slip.row_shift if slip else 0)
    choices, statuses = table["choice"].map(tuple).tolist(), table["status"].tolist()
    if slip is not None and slip.order is not None:
        options = aligned.own_questions[x].set_index("question_id")["options"][table["question_id"]].tolist()
        positions = np.array(list(map(named_position, table["response"], choices)))
        for at, true_position in enumerate(apply_order(positions, slip.order, options).tolist()):
            if positions[at] != UNREAD:
                is_option = 0 <= true_position < len(options[at])
                choices[at], statuses[at] = ((true_position,), "answered") if is_option else ((), "irrelevant")
    if x == 1:
        maps = np.repeat(np.fromiter(aligned.maps, object, len(aligned.maps)), aligned.runs[1].request.samples)
        choices = [tuple(sorted(order[at] for at in choice)) for choice, order in zip(choices, maps, strict=True)]
    cells = np.fromiter(zip(choices, statuses, strict=True), object, len(choices))
    readings: Readings = cells.reshape(len(aligned.own_questions[x]), -1)
    if slip is not None and slip.row_shift:
        # Moving rows leaves one question without an answer: it gets the other side's.
        edge = 0 if slip.row_shift > 0 else len(readings) - 1
        other_row = aligned.rows[1 - x].get(aligned.questions[x]["question_id"][edge])
        if other_row is not None:
            other_readings = _read(aligned, 1 - x, extraction, judge)[other_row]
            readings[edge] = other_readings[np.arange(readings.shape[1]) % len(other_readings)]
    aligned.readings[key] = readings
    return readings


def _find_slip(aligned: Aligned) -> tuple[Slip | None, list[Cause]]:
    """Return the clearest slip that costs its side points, and what it is worth: the change of that
    side's own score when it is undone.
    """
    is_reordered = any(order != sorted(order) for order in aligned.maps)
    if is_reordered or any(run.request.permute for run in aligned.runs):
        return None, []
    options = [aligned.questions[0]["options"][aligned.rows[0][name]] for name in aligned.common]
    named_by_shift = [{0: _positions(aligned, x, 0)} for x in (0, 1)]
    chosen = [_positions(aligned, x, 0, is_read=True) for x in (0, 1)]
    if (chosen[0] == chosen[1]).mean() > MAX_AGREEMENT:
        return None, []
    for x in (0, 1):
        named_by_shift[x] |= {shift: _positions(aligned, x, shift) for shift in (-1, 1)}
    candidates = [find_slips(x, named_by_shift[x], chosen[x], chosen[1 - x], options) for x in (0, 1)]
    kinds, _ = _classify(aligned)

    def score(x: int, slip: Slip | None) -> float:
        changed = frozenset((QUESTIONS, KEY, READER, JUDGE, LOST, REFUSED, ANSWERS) if x else ())
        return score_of_units(hybrid_units(replace(aligned, slip=slip, readings={}), kinds, changed))

    scores = [score(x, None) for x in (0, 1)] if any(candidates) else []
    for slip in sorted(chain(*candidates), key=lambda slip: slip.log_p):
        undone, raw = score(slip.side, slip), scores[slip.side]
        if undone <= raw:
            continue
        # Of two slips in one file, each is worth the mean of undoing it first and last.
        shares = [1.0]
        if len(slip.names) == 2:
            rows_only = score(slip.side, replace(slip, order=None))
            letters_only = score(slip.side, replace(slip, row_shift=0))
            rows_share = (rows_only - raw + undone - letters_only) / 2 / (undone - raw)
            shares = [rows_share, 1 - rows_share]
        cost = (raw - undone) * (1 if slip.side == 0 else -1)
        detail = f"in {'AB'[slip.side]}, {format_p_value(float(np.exp(slip.log_p)))}"
        n_answers = len(aligned.own_questions[slip.side]) * aligned.runs[slip.side].request.samples
        return slip, [
            Cause(name, share * cost, n_answers, detail) for name, share in zip(slip.names, shares, strict=True)
        ]
    return None, []


def _positions(aligned: Aligned, x: int, shift: int, is_read: bool = False) -> Positions:
    """Return the option positions that the first samples of side `x` name, its rows moved by
    `shift`; of the common questions.

    Args:
        aligned: The sides.
        x: 0 for A, 1 for B.
        shift: Number of rows.
        is_read: Only positions that the reader takes for the choice.
    """
    # Both sides by one reader: what another one does not read is no slip.
    table = read_side_answers(aligned, x, "ours", x, shift)
    first_samples = table[table["sample"] == 0].iloc[[aligned.rows[x][name] for name in aligned.common]]
    responses = [None] * len(first_samples) if is_read else first_samples["response"]
    return np.array(list(map(named_position, responses, first_samples["choice"])))


def _classify(aligned: Aligned) -> tuple[Kinds, tuple[Counter[str], Counter[str]]]:
    """Return the factor that each answer belongs to, and how the lost ones of each side were lost.

    The factor is LOST or REFUSED if an answer is so on one side only, else ANSWERS.
    """
    samples = min(run.request.samples for run in aligned.runs)
    kinds: Kinds = np.full((len(aligned.questions[0]), samples), ANSWERS, object)
    tables = []
    for x in (0, 1):
        shift = aligned.slip.row_shift if aligned.slip is not None and aligned.slip.side == x else 0
        # Both sides by one reader: what is read differently is another factor.
        table = read_side_answers(aligned, x, "ours", 0, shift)
        records = table.loc[table["sample"] < samples, ["status", "finish_reason", "response"]].to_dict("records")
        rows = [aligned.rows[x][name] for name in aligned.common]
        tables.append(np.fromiter(records, object, len(records)).reshape(-1, samples)[rows])
    lost_words = Counter[str](), Counter[str]()
    refused: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for row, sample in np.ndindex(tables[0].shape):
        a, b, cell = (
            tables[0].item(row, sample),
            tables[1].item(row, sample),
            (aligned.rows[0][aligned.common[row]], sample),
        )
        words = _lost_word(a, b), _lost_word(b, a)
        refuses = a["status"] == "refused", b["status"] == "refused"
        if bool(words[0]) != bool(words[1]):
            kinds[cell] = LOST
            lost_words[bool(words[1])][words[0] or words[1]] += 1
        elif refuses[0] != refuses[1]:
            refused[refuses[1]].append(cell)
    n_refused = list(map(len, refused))
    if any(n_refused) and binomtest(n_refused[0], sum(n_refused)).pvalue <= MAX_REFUSAL_P:
        kinds[tuple(np.transpose([*refused[0], *refused[1]]))] = REFUSED
    return kinds, lost_words


def _lost_word(answer: dict[str, Any], other_answer: dict[str, Any]) -> str:
    """Return how an answer was lost, compared with the other side's; empty if it was not."""
    status, text, other_text = (
        answer["status"],
        *(str(cell["response"] or "").strip() for cell in (answer, other_answer)),
    )
    if status in LOST_WORDS:
        return LOST_WORDS[status]
    is_start = len(text) < len(other_text) and other_text.startswith(text)
    is_cut_off = status == "irrelevant" and (answer["finish_reason"] == "length" or is_start)
    return ("cut off" if text else "empty") if is_cut_off else ""


def find_factors(aligned: Aligned) -> tuple[dict[str, Cause], Kinds]:
    """Return the factors that differ, without points, and the one that each answer belongs to."""
    factors: dict[str, Cause] = {}
    (questions_a, questions_b), common = aligned.questions, aligned.common
    only = [len(rows) - len(common) for rows in aligned.rows]
    frames = [frame.set_index("question_id", drop=False).loc[common] for frame in (questions_a, questions_b)]
    columns = [name for name in SCORED_COLUMNS if name in questions_a.columns and name in questions_b.columns]
    n_relabelled = int((frames[0][columns].map(str) != frames[1][columns].map(str)).any(axis=1).sum())
    counts = {"only in A": only[0], "only in B": only[1], "with other labels": n_relabelled}
    if any(counts.values()):
        factors[QUESTIONS] = Cause(QUESTIONS, 0.0, sum(counts.values()), _format_counts(counts))
    if n_keys := sum(set(a) != set(b) for a, b in zip(frames[0]["answer"], frames[1]["answer"], strict=True)):
        factors[KEY] = Cause(KEY, 0.0, n_keys)
    extractions = aligned.extractions
    if n_read := _count_read_differently(aligned, lambda x: [(reader, x) for reader in extractions]):
        factors[READER] = Cause(READER, 0.0, n_read, " | ".join(extractions))
    if n_judged := _count_read_differently(aligned, lambda x: [(extractions[x], judge) for judge in (0, 1)]):
        factors[JUDGE] = Cause(JUDGE, 0.0, n_judged)
    kinds, lost_words = _classify(aligned)
    if n_lost := int((kinds == LOST).sum()):
        sides = {f"in {side}": words.total() for side, words in zip("AB", lost_words, strict=True)}
        name = f"answers {' or '.join(sum(lost_words, Counter()))}"
        factors[LOST] = Cause(name, 0.0, n_lost, _format_counts(sides))
    if n_refused := int((kinds == REFUSED).sum()):
        factors[REFUSED] = Cause(REFUSED, 0.0, n_refused)
    return factors, kinds


def _format_counts(counts: dict[str, int]) -> str:
    """Format the counts that are not 0.

    >>> _format_counts({"in A": 0, "in B": 1200})
    '1,200 in B'
    """
    return ", ".join(f"{count:,} {noun}" for noun, count in counts.items() if count)


def _count_read_differently(aligned: Aligned, ways: Callable[[int], list[tuple[str, int]]]) -> int:
    """Count the answers that two ways to read them, (reader, side of the judge), read differently;
    an answer that both sides gave counts once.
    """
    differing: set[tuple[str, int, str]] = set()
    for x in (0, 1):
        tables = [read_side_answers(aligned, x, *way) for way in ways(x)]
        pairs = zip(*(zip(table["choice"].map(tuple), table["status"], strict=True) for table in tables), strict=True)
        cells = zip(*(tables[0][name] for name in ("question_id", "sample", "response")), strict=True)
        differing |= {cell for cell, (reading_a, reading_b) in zip(cells, pairs, strict=True) if reading_a != reading_b}
    return len(differing)


def _count_different(aligned: Aligned, kinds: Kinds) -> int:
    """Count the answers to common questions that choose differently, without those that belong to
    another factor.

    Both sides are read alike: by A's reader and judge, and by B's.
    """
    is_different = np.zeros(kinds.shape, bool)
    for judge, extraction in enumerate(aligned.extractions):
        a, b = (_read(aligned, x, extraction, judge) for x in (0, 1))
        for name in aligned.common:
            row_a, row_b = (rows[name] for rows in aligned.rows)
            is_different[row_a] |= [a[row_a, sample][0] != b[row_b, sample][0] for sample in range(kinds.shape[1])]
    return int((is_different & (kinds == ANSWERS)).sum())


def hybrid_units(aligned: Aligned, kinds: Kinds, changed: frozenset[str]) -> pd.DataFrame:
    """Return the units of the score with A's value of every factor, except for those in `changed`,
    which have B's.

    A question that only one side has answered keeps the answer of that side.
    """
    asked_side = QUESTIONS in changed
    ids = list(aligned.rows[asked_side])
    rows_a, rows_b = (np.array([rows.get(name, -1) for name in ids]) for rows in aligned.rows)
    samples = np.arange(aligned.runs[ANSWERS in changed].request.samples)
    extraction = aligned.extractions[READER in changed]
    a, b = (
        readings[rows][:, samples % readings.shape[1]]
        for rows, readings in zip(
            (rows_a, rows_b), (_read(aligned, x, extraction, JUDGE in changed) for x in (0, 1)), strict=True
        )
    )
    is_changed = np.isin(kinds[rows_a][:, samples % kinds.shape[1]].astype(str), list(changed))
    is_from_b = np.where((rows_a < 0)[:, None], True, is_changed & (rows_b >= 0)[:, None])
    choices, statuses = zip(*np.where(is_from_b, b, a).ravel(), strict=True)
    keys, key_rows = aligned.questions[KEY in changed]["answer"], aligned.rows[KEY in changed]
    frame = aligned.questions[asked_side]
    own_keys = zip(ids, frame["answer"], strict=True)
    frame = frame.assign(
        answer=pd.Series([keys[key_rows[name]] if name in key_rows else key for name, key in own_keys], dtype=object)
    )
    answers = pd.DataFrame(
        {"question_id": np.repeat(ids, len(samples)), "sample": np.tile(samples, len(ids)), "status": statuses}
    ).assign(choice=pd.Series(choices, dtype=object))
    family = aligned.sides[0].result.benchmark.family
    units = eval_spec(family).units(grade(family, frame, answers))
    return units[units["metric"] == aligned.metric]


def score_of_units(units: pd.DataFrame) -> float:
    """Return the score of units, in percent."""
    return 100 * float(units["numerator"].sum() / units["denominator"].sum())


def _shapley(player: str, players: Sequence[str], values: dict[frozenset[str], float]) -> float:
    """Return what exchanging a factor contributes to A - B, in points."""
    n = len(players)
    return sum(
        factorial(len(changed)) * factorial(n - len(changed) - 1) / factorial(n) * (value - values[changed | {player}])
        for changed, value in values.items()
        if player not in changed
    )


def _interval(
    aligned: Aligned, players: Sequence[str], tables: dict[frozenset[str], pd.DataFrame]
) -> tuple[float, float]:
    """Return the paired 95 % interval of the points of different answers.

    Their Shapley value is a mean of differences of scores, hence the difference of two mean scores,
    whose units are weighted means of units.
    """
    every_question = pd.concat(aligned.questions).drop_duplicates("question_id").reset_index(drop=True)
    cluster_of = dict(zip(every_question["case_id"], image_clusters(every_question), strict=True))
    n, sides = len(players), []
    for exchanged in (False, True):
        parts = []
        for changed, units in tables.items():
            if (ANSWERS in changed) == exchanged:
                size = len(changed - {ANSWERS})
                weight = factorial(size) * factorial(n - size - 1) / factorial(n) / units["denominator"].sum()
                numbers = units[["numerator", "denominator"]] * weight
                parts.append(units[["metric", "unit", "case_id"]].join(numbers))
        by_unit = pd.concat(parts).groupby("unit", sort=False, as_index=False)
        means = by_unit.agg({"metric": "first", "case_id": "first", "numerator": "sum", "denominator": "sum"})
        sides.append(means.assign(cluster=means["case_id"].map(cluster_of)))
    test = paired_test(sides[0], sides[1], aligned.metric)
    return test.low, test.high
