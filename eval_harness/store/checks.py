"""Check plausibility: lookalike names, implausible scores, baselines that cannot be reproduced.

A flag asks a person to review a result before it is added; it proves nothing, and nothing is
refused for it. A baseline with wrong answers, however, is refused, since every model would look
better or worse in comparison.

See also: checks of the dataset (`examine.py`), answers like those of another result
(`similarity.py`), names that are refused (`records/limits.py`).
"""

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
from eval_harness.records.limits import JOINERS
from eval_harness.records.request import Request, rotate_options, rotation
from eval_harness.records.result import DELIVERIES, Result, RunRecord

HIGH_ACCURACY = 0.90
"""A score whose interval begins above this accuracy may be too good to be true."""
FAR_BETTER_ERROR_RATIO = 3
"""How many times fewer errors than the best result of another account make a result far better.

Its interval must also begin above `HIGH_ACCURACY`.
"""
NEAR_PERFECT_ACCURACY = 0.99
"""From this accuracy, there are too few errors to compare them with those of other results."""
MIN_ANSWERS = 30
"""Minimum number of answers for a share of them to be meaningful."""
MIN_PEER_AUC = 0.65
"""If other results reach this area under the ROC curve, their errors have something in common.

The area is the probability that a question which a result has right was easier for the others than
one which it has wrong. It is .74 to .81 for five real models on 4,550 questions.
"""
UNRELATED_AUC = 0.6
"""Below this area under the ROC curve, a result's errors are unrelated to those of others.

Single pairs of real models reach .64; a key that was changed in random places reaches .5.
"""
MIN_SKILL = 0.15
"""Minimum accuracy above guessing; with less, most errors are just wrong guesses."""
FREQUENT_OPTION_SHARE = 0.25
"""An option must be offered by this share of questions to estimate how much a model prefers it."""
MIN_SDS_BELOW_CHANCE = 4.0
"""An arm is flagged if its score is this many standard deviations below chance."""
BASELINE_SEED = 0
"""The only seed that `eval` gives a baseline, so that runs cannot search for a lucky one."""
Z_ONE_SIDED_95 = 1.645
"""Quantile of the standard normal distribution for one-sided 95 % bounds."""
PublishedNames = Mapping[str, str | None]
"""Name in the papers' tables -> kind of the model (`baseline` if it is not a model)."""
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
    # `baseline_mismatches` has already compared every answer of a baseline.
    if result.model.responder != "model":
        return list(_method_flags(result, readings))
    table = _keyed_choices(questions, readings)
    against = _below_chance_flags(table) if result.method.image != "real" else ()
    return [*_selective_answer_flags(table), *against, *_method_flags(result, readings)]


def split_case_flags(questions: pd.DataFrame, split: pd.DataFrame) -> Iterator[str]:
    """Flag cases of which only some questions were asked.

    `eval` always asks all questions of a case, since they are scored together.

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
    """Flag a result whose errors are unlike those of others, or whose score is far above theirs.

    Even a strong model errs on the questions that are hard for others; answers made from the key by
    changing some of them do not. A high score alone is no evidence.

    Args:
        right: Question -> share of right answers, among those that chose an option.
        correct: Number of right answers.
        answers: Number of expected answers.
        peers: Like `right`, for the results of other accounts, one column each.
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
    # A few errors may be unlike those of others by chance, hence the margin. A score far above all
    # others is suspicious enough without it.
    if (
        peers_agree
        and auc + (0 if far_better else Z_ONE_SIDED_95) * auc_se < UNRELATED_AUC
        and right.mean() - guess >= MIN_SKILL
    ):
        yield (
            "its errors are unlike those of other models: in "
            f"{100 * auc:.0f} % of comparisons, a question that it has right was easier for "
            f"{len(peer_aucs)} other results than one that it has wrong (chance is 50 %, these "
            f"results reach {100 * min(peer_aucs):.0f} to {100 * max(peer_aucs):.0f} %)"
        )
    elif (
        far_better
        and correct >= NEAR_PERFECT_ACCURACY * answers
        and not (peers_agree and auc - Z_ONE_SIDED_95 * auc_se > 0.5)
    ):
        comparison = (
            f"the best of {len(peer_aucs)} other results on these questions has {100 * best:.0f} %"
            if peer_aucs
            else "no other account has a result on these questions"
        )
        yield f"a {'perfect' if correct == answers else 'remarkable'} score: {correct:,} of {answers:,} answers are right; {comparison}"


def wilson_lower_bound(count: Any, total: Any) -> Any:
    """Return the one-sided 95 % lower bound of a share (Wilson 1927).

    Args:
        count: Successes, as a number or an array.
        total: Trials, as a number or an array.
    """
    half_width = Z_ONE_SIDED_95 * np.sqrt(count * (total - count) / total + Z_ONE_SIDED_95**2 / 4)
    return (count + Z_ONE_SIDED_95**2 / 2 - half_width) / (total + Z_ONE_SIDED_95**2)


def _easiness_auc(right: pd.Series, easy: pd.Series) -> tuple[float, float]:
    """Compute how often a question that a result has right was easier for others than a wrong one.

    A question counts as right by the share of samples that are right, and as wrong by the rest. The
    standard error uses the effective numbers of right and wrong questions (Kish 1965).

    Args:
        right: Question -> share of right answers of the result.
        easy: Question -> mean share of right answers of the others.

    Returns:
        The area under the ROC curve, and its standard error.
    """
    compared = right.notna() & easy.notna()
    right_share, ease_rank = (
        right[compared].to_numpy(),
        easy[compared].rank(method="dense").to_numpy(np.int64),
    )
    positives, negatives = right_share.sum(), (1 - right_share).sum()
    # If all are right or all are wrong, the area is undefined.
    if min(positives, negatives) <= 0:
        return 0.5, math.inf
    harder = np.bincount(ease_rank, 1 - right_share)
    area = np.bincount(ease_rank, right_share) @ (harder.cumsum() - harder / 2) / (positives * negatives)
    m, n = positives**2 / (right_share**2).sum(), negatives**2 / ((1 - right_share) ** 2).sum()
    return float(area), math.sqrt((m + n + 1) / (12 * m * n))


def _keyed_choices(questions: pd.DataFrame, readings: pd.DataFrame) -> pd.DataFrame:
    """Return a table (chosen, right, options) of the answers to questions with a known key."""
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
    """Flag a result that is right whenever it chooses an option, and that often chooses none."""
    right, chosen = (
        int((table["chosen"] == table["right"]).sum()),
        int((table["chosen"].map(len) > 0).sum()),
    )
    if MIN_ANSWERS <= chosen < len(table) and right >= NEAR_PERFECT_ACCURACY * chosen:
        remainder = f"the other {len(table) - chosen:,} chose none: wrong answers may have been removed"
        yield f"{right:,} of the {chosen:,} answers that chose an option are right, and {remainder}"


def _below_chance_flags(table: pd.DataFrame) -> Iterator[str]:
    """Flag an arm that is right far less often than by chance, given the options that it prefers.

    Without the image a model guesses; only someone who has the key can avoid the right options.
    """
    # Chance is defined only for a single choice and a single correct option.
    table = table[table["chosen"].map(len).eq(1) & table["right"].map(len).eq(1)]
    rows = [
        (text, position == right[0], position == chosen[0], 1 / len(options))
        for chosen, right, options in table.itertuples(index=False)
        for position, text in enumerate(options)
    ]
    offered = pd.DataFrame(rows, columns=["text", "is_key", "is_chosen", "guess"])
    # A model may favour or avoid an option that many questions offer ("Yes", "None of the above"),
    # so its frequency is used. For any other option, chance is uniform.
    by_text = offered.groupby("text")["is_chosen"].agg(["mean", "size"]).loc[offered["text"]]
    chance = pd.Series(
        np.where(by_text["size"] >= FREQUENT_OPTION_SHARE * len(table), by_text["mean"], offered["guess"])
    )[offered["is_key"]]
    right = int((offered["is_key"] & offered["is_chosen"]).sum())
    # 1 is added to the variance, so that very few choices never raise the flag.
    if chance.sum() - right > MIN_SDS_BELOW_CHANCE * math.sqrt((chance * (1 - chance)).sum() + 1):
        yield f"{right:,} of its {len(table):,} choices without the right images are right, and {chance.sum():,.0f} are expected by chance"


def _method_flags(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """Flag a modified judge prompt, and answers without option scores if the method needs them."""
    method = result.method
    judge = method.judge
    if judge is not None and any(judge.get(name) != value for name, value in judge_prompt_record(method.name).items()):
        yield f"the judge was given another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"
    # Answers that were never delivered cannot have scores.
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

    A name is flagged in these cases:

    - It looks like the name of another result, of a published model or of a baseline, but differs
      from it in more than case and punctuation.
    - A model has the name of a baseline, or a baseline that of a published model.
    - It claims something ("verified") or contains a link.

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
                f"{clip(other_name)} is the name of a {actual_kind}, but this result is marked as a {claimed_kind}"
            )

    return flags


def _alphanumeric(name: str) -> str:
    """Return the letters and digits of a name, in lower case."""
    return re.sub(r"[\W_]+", "", name.casefold())


def skeleton(name: str) -> str:
    """Return the visual skeleton of a name (Unicode TR 39).

    Letters of other scripts are replaced by the Latin letters that they look like; case, spaces and
    punctuation are dropped. This is repeated until nothing changes, since a replaced letter (such
    as one without its accent) may again look like another.
    """
    while (reduced := _skeleton_pass(name)) != name:
        name = reduced
    return name


def _skeleton_pass(name: str) -> str:
    """Replace lookalike characters once; see `skeleton`."""
    latin = "".join(
        _latin_lookalike(letter) for letter in unicodedata.normalize("NFKC", re.sub(f"[{JOINERS}]", "", name))
    )
    unaccented = "".join(letter for letter in unicodedata.normalize("NFKD", latin) if not unicodedata.combining(letter))
    folded = re.sub(r"[\W_]+", "", unaccented.casefold()).translate(_SAME_GLYPHS)
    # Two letters that look like one.
    return folded.replace("rn", "m").replace("vv", "w")


def _latin_lookalike(letter: str) -> str:
    """Return the ASCII character that a letter looks like, or the letter itself."""
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
    """Check that the answers of a baseline are those that it would give; a model is not checked.

    Args:
        run: The run record.
        questions: The questions of the dataset, whose key the oracle uses.
        answers: The submitted answers, as `run_files.answer_frame` makes them.

    Yields:
        Why the answers are not the baseline's.
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
    """Yield the requests that a baseline gets, without prompt and image, which it does not use."""
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
