"""Plausibility checks: lookalike names, implausibly good scores, baselines that are not reproduced.

A flag asks a person to look before a result is added; it refuses nothing and proves nothing. A
baseline that is not reproduced would make every model look better or worse than guessing, so it is
refused.

See also: checks of the dataset (`examine.py`), answers like those of another result
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
"""A score whose interval begins above this accuracy may be too good to be true."""
FAR_BETTER_ERROR_RATIO = 3
"""A result above `HIGH_ACCURACY` is far better if it has this many times fewer errors than the best
result of another account.
"""
NEAR_PERFECT_ACCURACY = 0.99
"""Share of right answers from which there are too few errors to analyse where they fall."""
MIN_ANSWERS = 30
"""Minimum number of answers for a share of them to be meaningful."""
MIN_PEER_AUC = 0.65
"""Area under the ROC curve that other results reach among themselves if their errors have something
in common.

The curve measures how often a question that a result has right was easier for the others than one
that it has wrong. Five real models on 4,550 questions: .74 to .81.
"""
UNRELATED_AUC = 0.6
"""Area below which a result's errors are unrelated to those of others.

Single pairs of real models reach .64; a key with a random part changed, .5.
"""
MIN_SKILL = 0.15
"""Accuracy above guessing from which a result has errors of its own, rather than guesses."""
FREQUENT_OPTION_SHARE = 0.25
"""Share of questions that must offer an option before a model's preference for it can be
estimated.
"""
MIN_SDS_BELOW_CHANCE = 4.0
"""Standard deviations below the score expected by chance at which an arm's score is flagged."""
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
"""Words and symbols that only the board may use (verified, check marks, medals), and links."""
_SAME_GLYPHS = str.maketrans({"0": "o", "1": "l", "i": "l"})


def plausibility_flags(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Return the flags for a result.

    Args:
        result: The result.
        questions: The questions with their key.
        readings: The reading of each answer.
    """
    # Baselines are checked exactly, by `baseline_mismatches`.
    if result.model.responder != "model":  # a baseline was reproduced
        return list(_method_flags(result, readings))
    table = _keyed_choices(questions, readings)
    against = _below_chance_flags(table) if result.method.image != "real" else ()
    return [*_selective_answer_flags(table), *against, *_method_flags(result, readings)]


def split_case_flags(questions: pd.DataFrame, split: pd.DataFrame) -> Iterator[str]:
    """Flag cases of a split that were asked only in part.

    `eval` asks whole cases, whose questions are scored together.

    Args:
        questions: The questions that were asked.
        split: All questions of the split.
    """
    counts = questions.groupby("case_id").size()
    split_cases = int((counts < split.groupby("case_id").size().reindex(counts.index)).sum())
    if split_cases:
        yield f"{split_cases:,} of its {len(counts):,} cases were asked in part"


def unusual_score_flags(
    right: pd.Series, correct: int, answers: int, peers: pd.DataFrame, guess: float
) -> Iterator[str]:
    """Flag a result whose errors no other result makes, or that has almost none where others have
    many.

    A strong model still errs where others do; a key in which some answers were changed does not. A
    high score alone is no evidence.

    Args:
        right: Question -> share of right answers, among those that chose an option.
        correct: Number of right answers.
        answers: Number of expected answers.
        peers: The same shares for other accounts' results, one column each.
        guess: Accuracy of guessing, from 0 to 1.

    Yields:
        At most one line.
    """
    auc, auc_se = _easiness_auc(right, peers.mean(axis=1))
    peer_aucs = [_easiness_auc(peers[name], peers.drop(columns=name).mean(axis=1))[0] for name in peers]
    peers_agree = bool(peer_aucs) and float(np.median(peer_aucs)) >= MIN_PEER_AUC
    best = max(peers.mean(), default=0.0)
    far_better = (
        answers - correct < (1 - best) / FAR_BETTER_ERROR_RATIO * answers
        and wilson_lower_bound(correct, answers) >= HIGH_ACCURACY
    )
    # A few errors may fall anywhere by chance; for a score far above all others, no margin is
    # needed to ask.
    if (
        peers_agree
        and auc + (0 if far_better else Z_ONE_SIDED_95) * auc_se < UNRELATED_AUC
        and right.mean() - guess >= MIN_SKILL
    ):
        yield (
            "its errors fall where no other model's do: what it has right was easier for "
            f"{len(peer_aucs)} other results in {100 * auc:.0f} % of comparisons with what it has "
            f"wrong (50 % is chance, {100 * min(peer_aucs):.0f} to {100 * max(peer_aucs):.0f} % "
            "theirs)"
        )
    elif (
        far_better
        and correct >= NEAR_PERFECT_ACCURACY * answers
        and not (peers_agree and auc - Z_ONE_SIDED_95 * auc_se > 0.5)
    ):
        comparison = (
            f"the best of {len(peer_aucs)} other results on them has {100 * best:.0f} %"
            if peer_aucs
            else "no other account has a result on them"
        )
        yield f"a {'perfect' if correct == answers else 'remarkable'} score: {correct:,} of {answers:,} answers are right; {comparison}"


def _easiness_auc(right: pd.Series, easy: pd.Series) -> tuple[float, float]:
    """Compute how often a right question was easier for others than a wrong one.

    Each question counts by its share of right samples. The standard error is that of the effective
    number of questions (Kish 1965).

    Args:
        right: Question -> share of right answers.
        easy: Question -> mean share of right answers of the others.

    Returns:
        Area under the ROC curve, and its standard error.
    """
    compared = right.notna() & easy.notna()
    right_share, ease_rank = (
        right[compared].to_numpy(),
        easy[compared].rank(method="dense").to_numpy(np.int64),
    )
    positives, negatives = right_share.sum(), (1 - right_share).sum()
    # All right or all wrong: the area is undefined.
    if min(positives, negatives) <= 0:
        return 0.5, math.inf
    harder = np.bincount(ease_rank, 1 - right_share)
    area = np.bincount(ease_rank, right_share) @ (harder.cumsum() - harder / 2) / (positives * negatives)
    m, n = positives**2 / (right_share**2).sum(), negatives**2 / ((1 - right_share) ** 2).sum()
    return float(area), math.sqrt((m + n + 1) / (12 * m * n))


def _keyed_choices(questions: pd.DataFrame, readings: pd.DataFrame) -> pd.DataFrame:
    """Return (chosen, right, options) of each answer to a question with a known key."""
    asked_questions = questions.set_index(questions["question_id"].astype(str)).loc[
        readings["question_id"].astype(str).tolist()
    ]
    table = pd.DataFrame(
        {
            "chosen": readings["choice"].map(_sorted_choice).tolist(),
            "right": asked_questions["answer"].map(_sorted_choice).tolist(),
            "options": asked_questions["options"].map(list).tolist(),
        }
    )
    return table[table["right"].map(len) > 0]


def _selective_answer_flags(table: pd.DataFrame) -> Iterator[str]:
    """Flag results that are right wherever an option was chosen."""
    right, chosen = (
        int((table["chosen"] == table["right"]).sum()),
        int((table["chosen"].map(len) > 0).sum()),
    )
    if MIN_ANSWERS <= chosen < len(table) and right >= NEAR_PERFECT_ACCURACY * chosen:
        remainder = f"the other {len(table) - chosen:,} chose none: wrong answers may have been taken out"
        yield f"{right:,} of the {chosen:,} answers that chose an option are right, and {remainder}"


def _below_chance_flags(table: pd.DataFrame) -> Iterator[str]:
    """Flag an arm that is right far less often than chance, given its own preferences.

    Without the image a model guesses; only someone who has the key can avoid the right options.
    """
    # Only single choices with a single key: chance is not defined for the others.
    table = table[table["chosen"].map(len).eq(1) & table["right"].map(len).eq(1)]
    rows = [
        (text, position == right[0], position == chosen[0], 1 / len(options))
        for chosen, right, options in table.itertuples(index=False)
        for position, text in enumerate(options)
    ]
    offered = pd.DataFrame(rows, columns=["text", "is_key", "is_chosen", "guess"])
    # A model may favour or avoid an option that many questions offer ("Yes", "None of the above").
    # For any other option, chance is uniform.
    by_text = offered.groupby("text")["is_chosen"].agg(["mean", "size"]).loc[offered["text"]]
    chance = pd.Series(
        np.where(by_text["size"] >= FREQUENT_OPTION_SHARE * len(table), by_text["mean"], offered["guess"])
    )[offered["is_key"]]
    right = int((offered["is_key"] & offered["is_chosen"]).sum())
    if chance.sum() - right > MIN_SDS_BELOW_CHANCE * math.sqrt((chance * (1 - chance)).sum() + 1):
        yield f"{right:,} of its {len(table):,} choices without the right images are right, and {chance.sum():,.0f} would be by chance"


def _method_flags(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """Flag a modified judge prompt, and missing option scores for a method that chooses by them."""
    method = result.method
    judge = method.judge
    if judge is not None and any(judge.get(name) != value for name, value in judge_prompt_record(method.name).items()):
        yield f"the judge was given another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"
    # Undelivered answers have no scores for a legitimate reason.
    lacking = int(((readings["delivery"] == "answered") & readings["scores"].isna()).sum())
    if lacking and method.name in ("gd", "ps", "ps_official"):
        yield f"the method {method.name} chooses by option scores, and {lacking:,} answers have none"


def _sorted_choice(choice: Any) -> tuple[int, ...]:
    """Return the positions of a choice as a sorted tuple."""
    return tuple(sorted(int(position) for position in choice))


def similar_name_flags(
    name: str,
    other_names: Iterable[str] = (),
    published: PublishedNames | None = None,
    kind: str | None = None,
) -> list[str]:
    """Flag a misleading model name.

    A name is flagged if it resembles another result's name but differs in more than case and
    punctuation; if it resembles a published or baseline name; if a model has the name of a
    baseline, or a baseline that of a published model; and if it claims something or contains a
    link.

    Args:
        name: The model's name.
        other_names: Names of other results.
        published: Names in papers.
        kind: Kind of the model.

    Returns:
        One line per flag.
    """
    name_skeleton = skeleton(name)
    claim = CLAIM_PATTERN.search(unicodedata.normalize("NFKC", name))
    flags = [f"the model's name claims something or links somewhere: {clip(claim[0])}"] if claim else []
    flags += [
        f"the model's name looks like {clip(ascii(other_name))}, which is another result's"
        for other_name in dict.fromkeys(other_names)
        if _alphanumeric(other_name) != _alphanumeric(name) and skeleton(other_name) == name_skeleton
    ]

    for other_name, published_kind in {**BASELINE_NAMES, **(published or {})}.items():
        if skeleton(other_name) != name_skeleton:
            continue
        if _alphanumeric(other_name) != _alphanumeric(name):
            origin = "the name of a baseline" if other_name in BASELINE_NAMES else "a name that a paper reports"
            flags.append(f"the model's name looks like {clip(ascii(other_name))}, {origin}")
        elif (published_kind == "baseline") != (kind == "baseline"):
            actual_kind, claimed_kind = ("baseline", "model") if published_kind == "baseline" else ("model", "baseline")
            flags.append(
                f"{clip(other_name)} is the name of a {actual_kind}, and this says that it is a {claimed_kind}"
            )

    return flags


def _alphanumeric(name: str) -> str:
    """Return the letters and digits of a name, without case."""
    return re.sub(r"[\W_]+", "", name.casefold())


def skeleton(name: str) -> str:
    """Return the visual skeleton of a name (Unicode TR 39).

    Letters of other scripts are replaced by the Latin letters they resemble; case, spaces and
    punctuation are dropped. Idempotent: passes are repeated, since the result of one (a letter
    without its accent) may be confusable itself.
    """
    while (reduced := _skeleton_pass(name)) != name:
        name = reduced
    return name


def _skeleton_pass(name: str) -> str:
    """Apply one pass of `skeleton`."""
    latin = "".join(
        _latin_lookalike(letter) for letter in unicodedata.normalize("NFKC", re.sub(f"[{JOINERS}]", "", name))
    )
    unaccented = "".join(letter for letter in unicodedata.normalize("NFKD", latin) if not unicodedata.combining(letter))
    folded = re.sub(r"[\W_]+", "", unaccented.casefold()).translate(_SAME_GLYPHS)
    # Letter pairs that look like one letter.
    return folded.replace("rn", "m").replace("vv", "w")


def _latin_lookalike(letter: str) -> str:
    """Return the ASCII character that a letter resembles, or the letter itself."""
    if letter.isascii():
        return letter
    from confusable_homoglyphs.confusables import confusables_data

    return next(
        (
            confusable["c"]
            for confusable in confusables_data.get(letter, ())
            if confusable["c"].isascii() and confusable["c"].isalnum()
        ),
        letter,
    )


def baseline_mismatches(run: RunRecord, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
    """Check that the answers of a baseline are those that it gives; yields nothing for a model.

    Args:
        run: The run record.
        questions: The questions of the dataset, whose key the oracle uses.
        answers: The submitted answers, as `answer_table.answer_frame` makes them.

    Yields:
        Why they are not the baseline's.
    """
    if run.model.responder not in ("guessing", "oracle"):
        return
    name = run.request.model.removeprefix("baseline:")
    if run.request.model == name or (name == "oracle") != (run.model.responder == "oracle"):
        yield f"states that {run.model.responder} answered, but its request names {run.request.model[:100]!r}"
        return

    try:
        display_name, answered = make_baseline(name)
    except BadInput as error:
        yield str(error)
        return

    name_skeleton = skeleton(run.model.name)
    if mimicked_name := next(
        (
            baseline_name
            for baseline_name in BASELINE_NAMES
            if baseline_name != display_name and skeleton(baseline_name) == name_skeleton
        ),
        None,
    ):
        yield f"it is named {mimicked_name}, but {run.request.model} answered: omit --name"

    expected = {
        (response.question_id, response.sample): (response.text, DELIVERIES[response.status])
        for response in map(answered, _baseline_requests(run, questions))
    }
    columns = (answers[column] for column in ("question_id", "sample", "response", "delivery"))
    submitted = {
        (question, int(sample)): (text, delivery) for question, sample, text, delivery in zip(*columns, strict=True)
    }
    mismatches = sum(submitted.get(key) != answer for key, answer in expected.items())
    if mismatches:
        yield (
            f"{mismatches:,} of {len(expected):,} answers are not those of {run.request.model}: "
            "only baselines of medprobe can be added as such"
        )


def _baseline_requests(run: RunRecord, questions: pd.DataFrame) -> Iterator[Request]:
    """Yield the requests that a baseline gets: it uses neither prompt nor image."""
    for row in questions.to_dict("records"):
        count = len(row["options"])
        for sample in range(run.request.samples):
            # As for a model, the options are rotated by the sample number.
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
