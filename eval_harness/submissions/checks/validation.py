"""Whether a submission is what it says: its names, its answers, and its scores against those that we compute from its answers.

Problems refuse a submission. See also: what a human should look at (`plausibility.py`), reading files (`predictions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.sources.problems import clip
from eval_harness.records.result import DELIVERIES, DERIVE_VERSION, STATUSES, Result, Score
from eval_harness.submissions.untrusted.files import Found, Placed

TOLERANCE = 5e-5
"""How far a claimed number may be from the recomputed one: half of the fourth decimal, in percent."""
JUDGED = (
    "its answers were read by a judge model, which nobody can ask again here: read them by rules with "
    "`medprobe score RUN_DIR --no-judge`, then submit that"
)


def checked_answers(
    rows: Iterable[Placed], questions: pd.DataFrame, samples: int, method: str, found: Found | None = None
) -> tuple[list[dict[str, Any]], list[str]]:
    """The journal records behind rows of answers (where, row), and what is wrong with them: of a file of answers, a journal, a bundle.

    Refused are unknown questions, an answer given twice, wrong types, and numbers that are none. Only `failed` and `refused` are taken
    from a row's status; whether a response was an answer is read again. `found` also holds what is wrong with the file that is read
    meanwhile; when it is full, the rest is not read.
    """
    found = found or Found()
    options = dict(zip(questions["question_id"].astype(str), questions["options"].map(len), strict=True))
    records: dict[tuple[str, int], dict[str, Any]] = {}
    for where, row in rows:
        name, sample = row.get("question_id"), whole(row.get("sample"))
        if not isinstance(name, str):
            what = "has no `question_id` (or `index`). Name the question that was answered."
        elif name not in options:
            what = f"question {clip(name)} is not in this split of the dataset. Check which benchmark and split it answers."
        elif sample is None or not 0 <= sample < samples:
            what = f"sample {clip(row.get('sample'))} of question {clip(name)} is not one of {samples:,} (from 0)"
        elif (name, sample) in records:
            what = f"question {clip(name)}, sample {sample}, is answered twice. Keep one of them."
        else:
            what = _wrong_words(row) or _wrong_scores(row.get("scores"), options[name], method) or ""
        if what:
            found.add(where, what)
            if found.full:
                break
            continue
        kept = {key: row.get(key) for key in ("response", "seconds", "scores", "reasoning", "finish_reason", "usage")}
        if row.get("tokens_in") is not None or row.get("tokens_out") is not None:
            kept["usage"] = [row.get("tokens_in"), row.get("tokens_out")]
        assert isinstance(name, str) and sample is not None
        records[name, sample] = {"question_id": name, "sample": sample, "status": _journal_status(row), **kept}
    if found.full:
        found.problems.append("and more; the rest was not read")
    return list(records.values()), found.problems


def check_samples(records: Sequence[Mapping[str, Any]], samples: int) -> None:
    """Raise BadInput where a result says more samples of each question than there is one answer to: each would be counted as missing."""
    most = 1 + max((record["sample"] for record in records), default=samples - 1)
    if most < samples:
        raise BadInput(
            f"says {samples:,} samples of each question, and its answers hold at most {most:,}: finish the run first"
        )


def _journal_status(row: dict[str, Any]) -> str:
    """What the server did, in the journal's words; journals and files of other harnesses have no `delivery`."""
    if "delivery" in row:
        return next((status for status, delivery in DELIVERIES.items() if delivery == row["delivery"]), "failed")
    return str(row["status"]) if row["status"] in ("failed", "refused") else "answered"


def _wrong_scores(scores: Any, options: int, method: str) -> str | None:
    if scores is None:
        return None
    if method not in ("gd", "ps", "ps_official"):
        return f"holds option scores, which the method {clip(method)} has none of"
    # NaN and infinity are what a model may give; a choice is only read where every score is a number.
    if not isinstance(scores, list) or len(scores) != options or not all(map(_is_score, scores)):
        return f"option scores must be {options} numbers"
    return None


def _is_score(score: Any) -> bool:
    if score is None or isinstance(score, float):
        return True
    return isinstance(score, int) and not isinstance(score, bool) and abs(score) < 1 << 53


def _wrong_words(row: dict[str, Any]) -> str | None:
    """What is wrong with the columns of a row that say what came of the request."""
    if "response" not in row:
        return "has no `response`. Give the model's text, or null where it gave none."
    if not isinstance(row["response"], str | None):
        return f"`response` must be text or null, not {type(row['response']).__name__}."
    if row.get("status") not in STATUSES:
        return f"status {clip(row.get('status'))} is none of {', '.join(STATUSES)}"
    if "delivery" in row and row["delivery"] not in DELIVERIES.values():
        return f"delivery {clip(row['delivery'])} is none of {', '.join(DELIVERIES.values())}"
    if not _is_duration(row.get("seconds")):
        return "`seconds` must be a number from 0, or null."
    for name in ("reasoning", "finish_reason"):
        if not isinstance(row.get(name), str | None):
            return f"{name} must be text or null"
    usage = row.get("usage")
    if usage is not None and (not isinstance(usage, list) or len(usage) != 2):
        return "usage must be two numbers of tokens, or null"
    counts = [row.get("tokens_in"), row.get("tokens_out"), *(usage or [])]
    if not all(count is None or (type(count) is int and 0 <= count < 1 << 53) for count in counts):
        return "tokens must be whole numbers from 0, or null"
    return None


def whole(value: Any) -> int | None:
    """A sample number as files hold it (absent is 0; 1.0 is 1, as tables with gaps write it); None when it is none."""
    if value is None:
        return 0
    if isinstance(value, str):
        digits = value.removesuffix(".0")
        return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 8 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_duration(seconds: Any) -> bool:
    """Whether it may stand in the column `seconds`: absent, or a finite number from 0."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return seconds is None
    return 0 <= seconds < 1e9


PARTS = ("value", "low", "high", "chance", "n", "n_cases", "verdict", "interval_method")
Cells = dict[tuple[str, str], Score]
"""(where, metric) -> its score. `where`: "" all in all, "FACET VALUE: " for a label."""


def different_claims(claimed: Result, computed: Result) -> Iterator[str]:
    """Each number that a result claims, and its answers do not give; where all in all agree, those for a part. What it leaves out is no
    claim; of a result with another `derive_version` nothing is compared."""
    if claimed.derive_version == DERIVE_VERSION:
        whole = list(_different(_cells(claimed, False), _cells(computed, False)))
        yield from whole or _different(_cells(claimed), _cells(computed))


def different_results(claimed: Result, computed: Result, with_parts: bool = True) -> Iterator[str]:
    """Everything computed in a result that its answers do not give; what is left out counts as different. `with_parts`: the breakdown
    as well."""
    theirs, ours = _cells(claimed, with_parts), _cells(computed, with_parts)
    yield from _different(theirs, ours)
    yield from (f"lacks the score {where}{name}" for where, name in sorted(ours.keys() - theirs.keys()))
    if with_parts:  # a label without scores is a label all the same
        for facet in sorted(claimed.breakdown.keys() | computed.breakdown.keys()):
            labels = [set(result.breakdown.get(facet, {None: {}})) for result in (claimed, computed)]
            if labels[0] != labels[1]:
                yield f"its breakdown by {clip(facet)} is not that of its answers"
    yield from _different_statuses(claimed, computed)


def _cells(result: Result, with_parts: bool = True) -> Cells:
    cells = {("", name): score for name, score in result.scores.items()}
    if with_parts:
        for facet, values in result.breakdown.items():
            for value, scores in values.items():
                cells |= {(f"{facet} {value}: ", name): score for name, score in scores.items()}
    return cells


def _different(claimed: Cells, computed: Cells) -> Iterator[str]:
    """Each claimed number that its answers do not give, with both."""
    for (where, name), theirs in claimed.items():
        ours = computed.get((where, name))
        for part in PARTS:
            left, right = getattr(theirs, part), getattr(ours, part, None)
            if not _same(left, right):
                what = "" if part == "value" else f" ({part})"
                yield f"claims {where}{name}{what} = {left}, its answers give {right}"
                break


def _different_statuses(claimed: Result, computed: Result) -> Iterator[str]:
    if +Counter(claimed.statuses) != +Counter(computed.statuses):  # a status that a file leaves out counts 0
        yield f"claims the statuses {claimed.statuses}, its answers give {computed.statuses}"


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return abs(left - right) <= TOLERANCE
    return bool(left == right)
