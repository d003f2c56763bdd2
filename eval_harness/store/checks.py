"""Checks beyond the numbers: names that resemble others, implausibly good scores, baselines that cannot be reproduced.

A flag asks a person to look before a result is added; it refuses nothing and proves nothing. A baseline that is not reproduced would make
every model look better or worse than guessing; it is refused. See also: its dataset (`examine.py`), answers like those of another result
(`similarity.py`), names that are refused (`records/names.py`).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from dataset_builders.errors import BadInput, clip
from dataset_builders.schema import LETTERS
from eval_harness.reader.judge import judge_prompt_record
from eval_harness.records.baseline_rules import make_baseline
from eval_harness.records.names import JOINERS
from eval_harness.records.permutations import rotate_options, rotation
from eval_harness.records.request import Request
from eval_harness.records.result import DELIVERIES, Result
from eval_harness.records.run import RunRecord
from eval_harness.store.similarity import Z_ONE_SIDED_95, wilson_lower_bound

HIGH_ACCURACY = 0.90
"""Accuracy, at the lower end of its interval, from which a score may be too good."""
FAR_BETTER_ERROR_RATIO = 3
"""A result above `REMARKABLE` that makes so many times fewer errors than the best one of another account is far better."""
NEAR_PERFECT_ACCURACY = 0.99
"""Share of right answers from which there are too few errors to say where they fall."""
MIN_ANSWERS = 30
"""Minimum number of answers for a share of them to be meaningful."""
MIN_PEER_AUC = 0.65
"""Area under the ROC curve (how often a question that a result has right was easier for the others than one that it has wrong) that other
results reach among themselves where their errors have something in common. Five real models on 4,550 questions: .74 to .81."""
UNRELATED_AUC = 0.6
"""The same below which a result's errors have nothing to do with those of others; single pairs of real models reach .64, a key of which a
part was changed at random .5."""
MIN_SKILL = 0.15
"""Accuracy above guessing from which a result has errors of its own, rather than guesses."""
FREQUENT_OPTION_SHARE = 0.25
"""Share of questions under which an option must stand for a model's liking of it to be known."""
MIN_SDS_BELOW_CHANCE = 4.0
"""Standard deviations below what its choices would get by chance at which an arm's score is flagged."""
BASELINE_SEED = 0
"""The only seed that `eval` gives a baseline: runs cannot search for a lucky one."""
PublishedNames = Mapping[str, str | None]
"""Name in the papers' tables -> kind (`baseline`: not a model)."""
BASELINE_NAMES = {
    make_baseline(rule)[0]: "baseline" for rule in ("chance", "oracle", *(f"always-{letter}" for letter in LETTERS))
}
"""Names of medprobe's own baselines."""
CLAIM_PATTERN = re.compile(
    r"\b(official|verified|certified|approved|endorsed)\b"
    r"|[\u2611\u2705\u2713\u2714\U0001f5f8\U0001f396\U0001f3c5\U0001f3c6\U0001f947]"
    r"|://|\bwww\.|\.(com|org|net|io|dev|app)\b|\.[a-z]{2,}/",
    re.IGNORECASE,
)
"""What a name has no business to say: words and signs of the board's own, and links."""
_SAME_GLYPHS = str.maketrans({"0": "o", "1": "l", "i": "l"})


def plausibility_flags(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Flags for a result of `readings` of answers to `questions`."""
    if result.model.responder != "model":  # a baseline was reproduced
        return list(_method_flags(result, readings))
    table = _keyed_choices(questions, readings)
    against = _below_chance_flags(table) if result.method.image != "real" else ()
    return [*_selective_answer_flags(table), *against, *_method_flags(result, readings)]


def split_case_flags(questions: pd.DataFrame, split: pd.DataFrame) -> Iterator[str]:
    """Flag cases of a `split` that were asked only in part: `eval` asks whole cases, which are scored together."""
    counts = questions.groupby("case_id").size()
    halves = int((counts < split.groupby("case_id").size().reindex(counts.index)).sum())
    if halves:
        yield f"{halves:,} of its {len(counts):,} cases were asked in part"


def unusual_score_flags(
    right: pd.Series, correct: int, answers: int, peers: pd.DataFrame, guess: float
) -> Iterator[str]:
    """Flag a result whose errors are none that other results make, or that has none where theirs are many.

    A strong model still errs where others do. A key in which some answers were changed does not. A high score alone is no evidence.

    Args:
        right: question -> share of right answers, of those that chose an option.
        correct: number of right answers.
        answers: number of answers that were due.
        peers: the same shares of other accounts' results, a column each.
        guess: what guessing gets.
    """
    area, error = _easiness_auc(right, peers.mean(axis=1))
    others = [_easiness_auc(peers[name], peers.drop(columns=name).mean(axis=1))[0] for name in peers]
    agree = bool(others) and float(np.median(others)) >= MIN_PEER_AUC
    best = max(peers.mean(), default=0.0)
    far_better = (
        answers - correct < (1 - best) / FAR_BETTER_ERROR_RATIO * answers
        and wilson_lower_bound(correct, answers) >= HIGH_ACCURACY
    )
    # Few errors may fall anywhere by chance; of a score far above all others, where they fall is enough to ask.
    if (
        agree
        and area + (0 if far_better else Z_ONE_SIDED_95) * error < UNRELATED_AUC
        and right.mean() - guess >= MIN_SKILL
    ):
        yield (
            f"its errors fall where no other model's do: what it has right was easier for {len(others)} other results in "
            f"{100 * area:.0f} % of comparisons with what it has wrong (50 % is chance, {100 * min(others):.0f} to "
            f"{100 * max(others):.0f} % theirs)"
        )
    elif (
        far_better
        and correct >= NEAR_PERFECT_ACCURACY * answers
        and not (agree and area - Z_ONE_SIDED_95 * error > 0.5)
    ):
        than = (
            f"the best of {len(others)} other results on them has {100 * best:.0f} %"
            if others
            else "no other account has a result on them"
        )
        yield f"a {'perfect' if correct == answers else 'remarkable'} score: {correct:,} of {answers:,} answers are right; {than}"


def _easiness_auc(right: pd.Series, easy: pd.Series) -> tuple[float, float]:
    """Area under the ROC curve, how often a question that is right was easier for others than one that is wrong; its standard error.

    Of several samples each counts by its share; the error is that of as many questions as they are worth (Kish 1965).
    """
    compared = right.notna() & easy.notna()
    share, rank = right[compared].to_numpy(), easy[compared].rank(method="dense").to_numpy(np.int64)
    ones, zeros = share.sum(), (1 - share).sum()
    if min(ones, zeros) <= 0:
        return 0.5, math.inf
    harder = np.bincount(rank, 1 - share)
    area = np.bincount(rank, share) @ (harder.cumsum() - harder / 2) / (ones * zeros)
    m, n = ones**2 / (share**2).sum(), zeros**2 / ((1 - share) ** 2).sum()
    return float(area), math.sqrt((m + n + 1) / (12 * m * n))


def _keyed_choices(questions: pd.DataFrame, readings: pd.DataFrame) -> pd.DataFrame:
    """(chosen, right, options) of each answer to a question with a known key."""
    asked = questions.set_index(questions["question_id"].astype(str)).loc[readings["question_id"].astype(str).tolist()]
    table = pd.DataFrame(
        {
            "chosen": readings["choice"].map(_sorted_choice).tolist(),
            "right": asked["answer"].map(_sorted_choice).tolist(),
            "options": asked["options"].map(list).tolist(),
        }
    )
    return table[table["right"].map(len) > 0]


def _selective_answer_flags(table: pd.DataFrame) -> Iterator[str]:
    """Flag results that are right wherever an option was chosen."""
    right, chosen = int((table["chosen"] == table["right"]).sum()), int((table["chosen"].map(len) > 0).sum())
    if MIN_ANSWERS <= chosen < len(table) and right >= NEAR_PERFECT_ACCURACY * chosen:
        others = f"the other {len(table) - chosen:,} chose none: wrong answers may have been taken out"
        yield f"{right:,} of the {chosen:,} answers that chose an option are right, and {others}"


def _below_chance_flags(table: pd.DataFrame) -> Iterator[str]:
    """Flag an arm that is right far less often than its own preferences give by chance: without the image a model guesses, and only who
    has the key can avoid it."""
    table = table[table["chosen"].map(len).eq(1) & table["right"].map(len).eq(1)]
    rows = [
        (text, position == right[0], position == chosen[0], 1 / len(options))
        for chosen, right, options in table.itertuples(index=False)
        for position, text in enumerate(options)
    ]
    offered = pd.DataFrame(rows, columns=["text", "is_key", "is_chosen", "guess"])
    # "Yes" or "None of the above" stands under many questions, and a model may like or avoid it; other options are a guess.
    by_text = offered.groupby("text")["is_chosen"].agg(["mean", "size"]).loc[offered["text"]]
    chance = pd.Series(
        np.where(by_text["size"] >= FREQUENT_OPTION_SHARE * len(table), by_text["mean"], offered["guess"])
    )[offered["is_key"]]
    right = int((offered["is_key"] & offered["is_chosen"]).sum())
    if chance.sum() - right > MIN_SDS_BELOW_CHANCE * math.sqrt((chance * (1 - chance)).sum() + 1):
        yield f"{right:,} of its {len(table):,} choices without the right images are right, and {chance.sum():,.0f} would be by chance"


def _method_flags(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """Flag a judge prompt that is not ours, and missing option scores for a method that chooses by them."""
    method = result.method
    judge = method.judge
    if judge is not None and any(judge.get(name) != value for name, value in judge_prompt_record(method.name).items()):
        yield f"the judge was asked with another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"
    lacking = int(((readings["delivery"] == "answered") & readings["scores"].isna()).sum())
    if lacking and method.name in ("gd", "ps", "ps_official"):
        yield f"the method {method.name} chooses by option scores, and {lacking:,} answers have none"


def _sorted_choice(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))


def similar_name_flags(
    name: str, others: Iterable[str] = (), published: PublishedNames | None = None, kind: str | None = None
) -> list[str]:
    """Flags for a name that looks like one of `others` but differs in more than case and punctuation, or like a published or baseline
    name; for a model (`kind`) with the name of a baseline, and a baseline with that of a published model; for a name that makes claims."""
    seen = skeleton(name)
    claim = CLAIM_PATTERN.search(unicodedata.normalize("NFKC", name))
    found = [f"the model's name claims something or links somewhere: {clip(claim[0])}"] if claim else []
    found += [
        f"the model's name looks like {clip(ascii(other))}, which is another result's"
        for other in dict.fromkeys(others)
        if _alphanumeric(other) != _alphanumeric(name) and skeleton(other) == seen
    ]
    for other, its_kind in {**BASELINE_NAMES, **(published or {})}.items():
        if skeleton(other) != seen:
            continue
        if _alphanumeric(other) != _alphanumeric(name):
            whose = "the name of a baseline" if other in BASELINE_NAMES else "a name that a paper reports"
            found.append(f"the model's name looks like {clip(ascii(other))}, {whose}")
        elif (its_kind == "baseline") != (kind == "baseline"):
            names, says = ("baseline", "model") if its_kind == "baseline" else ("model", "baseline")
            found.append(f"{clip(other)} is the name of a {names}, and this says that it is a {says}")
    return found


def _alphanumeric(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def skeleton(name: str) -> str:
    """The visual skeleton of a name: letters of other scripts replaced by the Latin ones they resemble (Unicode TR 39), without case,
    spaces and punctuation. Idempotent: the result of one pass (a letter without its accent) may be confusable itself."""
    while (seen := _skeleton_pass(name)) != name:
        name = seen
    return name


def _skeleton_pass(name: str) -> str:
    looks = "".join(
        _latin_lookalike(letter) for letter in unicodedata.normalize("NFKC", re.sub(f"[{JOINERS}]", "", name))
    )
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", looks) if not unicodedata.combining(letter))
    same = re.sub(r"[\W_]+", "", plain.casefold()).translate(_SAME_GLYPHS)
    return same.replace("rn", "m").replace("vv", "w")


def _latin_lookalike(letter: str) -> str:
    if letter.isascii():
        return letter
    from confusable_homoglyphs.confusables import confusables_data

    return next(
        (each["c"] for each in confusables_data.get(letter, ()) if each["c"].isascii() and each["c"].isalnum()), letter
    )


def baseline_mismatches(run: RunRecord, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
    """Why the answers of a run are not those of the baseline that it says it ran; nothing for a model's.

    `questions`: of the dataset, by whose key the oracle answers. `answers`: as `answer_table.answer_frame`.
    """
    if run.model.responder not in ("guessing", "oracle"):
        return
    name = run.request.model.removeprefix("baseline:")
    if run.request.model == name or (name == "oracle") != (run.model.responder == "oracle"):
        yield f"says that {run.model.responder} answered, and its request asked {run.request.model[:100]!r}"
        return
    try:
        display, answered = make_baseline(name)
    except BadInput as error:
        yield str(error)
        return
    seen = skeleton(run.model.name)
    if called := next((own for own in BASELINE_NAMES if own != display and skeleton(own) == seen), None):
        yield f"it is called {called}, and {run.request.model} answered: omit --name"
    expected = {
        (each.question_id, each.sample): (each.text, DELIVERIES[each.status])
        for each in map(answered, _baseline_requests(run, questions))
    }
    columns = (answers[column] for column in ("question_id", "sample", "response", "delivery"))
    given = {
        (question, int(sample)): (text, delivery) for question, sample, text, delivery in zip(*columns, strict=True)
    }
    other = sum(given.get(key) != answer for key, answer in expected.items())
    if other:
        yield (
            f"{other:,} of {len(expected):,} answers are not those of {run.request.model}: only baselines of medprobe can be "
            "added as such"
        )


def _baseline_requests(run: RunRecord, questions: pd.DataFrame) -> Iterator[Request]:
    """The request that a baseline gets: it uses neither prompt nor image."""
    for row in questions.to_dict("records"):
        count = len(row["options"])
        for sample in range(run.request.samples):
            turned = rotation(sample, count) if run.request.permute else 0
            yield Request(
                question_id=str(row["question_id"]),
                sample=sample,
                prompt="",
                image=None,
                options=tuple(rotate_options(list(row["options"]), turned)),
                question_type=str(row["question_type"]),
                answer=tuple((int(position) - turned) % count for position in row["answer"]),
                seed=BASELINE_SEED,
            )
