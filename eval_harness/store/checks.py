"""Checks beyond the numbers: names that resemble others, implausibly good scores, baselines that cannot be reproduced.

A flag asks a person to look before a result is added; it refuses nothing and proves nothing. A baseline that is not reproduced would make
every model look better or worse than guessing; it is refused. See also: its dataset (`examine.py`), answers like those of another result
(`likeness.py`), names that are refused (`records/names.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput, clip
from dataset_builders.schema import LETTERS
from eval_harness.reader.judge import prompt_of
from eval_harness.records.baselines import baseline
from eval_harness.records.permutations import rotation, shown
from eval_harness.records.request import Request
from eval_harness.records.result import DELIVERIES, Result
from eval_harness.records.run import RunRecord

REMARKABLE = 0.90
"""Accuracy from which a result is flagged: no model in the papers of the four benchmarks comes near it."""
ENOUGH = 30
"""Minimum number of questions for such an accuracy to be meaningful."""
FEW = 8
"""Minimum number of questions for a perfect score to be suspicious; with fewer it happens by guessing."""
SEED = 0
"""The only seed that `eval` gives a baseline: runs cannot search for a lucky one."""
Published = Mapping[str, str | None]
"""Name in the papers' tables -> kind (`baseline`: not a model)."""
OWN = {baseline(rule)[0]: "baseline" for rule in ("chance", "oracle", *(f"always-{letter}" for letter in LETTERS))}
"""Names of medprobe's own baselines."""
_INVISIBLE = dict.fromkeys(
    [
        *map(ord, "\u115f\u1160\u3164\uffa0\u17b4\u17b5\u2800\u034f\u200c\u200d"),
        *range(0xFE00, 0xFE10),
        *range(0x180B, 0x1810),
    ],
    None,
)
"""Invisible characters: fillers, joiners and variation selectors."""
_SAME = str.maketrans({"0": "o", "1": "l", "i": "l"})


def doubts(result: Result, questions: pd.DataFrame, readings: pd.DataFrame) -> list[str]:
    """Flags for a result of `readings` of answers to `questions`."""
    is_model = result.model.responder == "model"  # a baseline was reproduced
    remarkable = _remarkable(questions, readings) if is_model else ()
    return [*remarkable, *_odd_method(result, readings)]


def asked_in_part(questions: pd.DataFrame, split: pd.DataFrame) -> Iterator[str]:
    """Flag cases of a `split` that were asked only in part: `eval` asks whole cases, which are scored together."""
    counts = questions.groupby("case_id").size()
    halves = int((counts < split.groupby("case_id").size().reindex(counts.index)).sum())
    if halves:
        yield f"{halves:,} of its {len(counts):,} cases were asked in part"


def _remarkable(questions: pd.DataFrame, readings: pd.DataFrame) -> Iterator[str]:
    """Flag results that are (nearly) all correct over all samples, or correct wherever an option was chosen."""
    key = dict(zip(questions["question_id"].astype(str), questions["answer"].map(_tuple), strict=True))
    wanted = [key[name] for name in readings["question_id"].astype(str)]
    table = pd.DataFrame({"given": readings["choice"].map(_tuple).tolist(), "wanted": wanted})
    table = table[table["wanted"].map(len) > 0]
    asked, right = len(table), int((table["given"] == table["wanted"]).sum())
    chosen, samples = int((table["given"].map(len) > 0).sum()), max(1, readings["sample"].nunique())
    if right >= REMARKABLE * asked and asked // samples >= (FEW if right == asked else ENOUGH):
        word = "perfect" if right == asked else "remarkable"
        yield f"a {word} score: {right:,} of {asked:,} answers are right, more than of any model in the papers"
    if ENOUGH <= chosen < asked and right >= 0.99 * chosen:
        others = f"the other {asked - chosen:,} chose none: wrong answers may have been taken out"
        yield f"{right:,} of the {chosen:,} answers that chose an option are right, and {others}"


def _odd_method(result: Result, readings: pd.DataFrame) -> Iterator[str]:
    """Flag a judge prompt that is not ours, and missing option scores for a method that chooses by them."""
    method = result.method
    judge = method.judge
    if judge is not None and any(judge.get(name) != value for name, value in prompt_of(method.name).items()):
        yield f"the judge was asked with another prompt than medprobe's ({clip(judge.get('prompt_hash'))})"
    lacking = int(((readings["delivery"] == "answered") & readings["scores"].isna()).sum())
    if lacking and method.name in ("gd", "ps", "ps_official"):
        yield f"the method {method.name} chooses by option scores, and {lacking:,} answers have none"


def _tuple(choice: Any) -> tuple[int, ...]:
    return tuple(sorted(int(position) for position in choice))


def look_alike(
    name: str, others: Iterable[str] = (), published: Published | None = None, kind: str | None = None
) -> list[str]:
    """Flags for a name that looks like one of `others` but differs, or like a published or baseline name; also for a model (`kind`) with
    the name of a baseline, and a baseline with that of a published model."""
    seen = skeleton(name)
    found = [
        f"the model's name looks like {clip(ascii(other))}, which is another result's"
        for other in dict.fromkeys(others)
        if other != name and skeleton(other) == seen
    ]
    for other, its_kind in {**OWN, **(published or {})}.items():
        if skeleton(other) != seen:
            continue
        if _plain(other) != _plain(name):
            whose = "the name of a baseline" if other in OWN else "a name that a paper reports"
            found.append(f"the model's name looks like {clip(ascii(other))}, {whose}")
        elif (its_kind == "baseline") != (kind == "baseline"):
            names, says = ("baseline", "model") if its_kind == "baseline" else ("model", "baseline")
            found.append(f"{clip(other)} is the name of a {names}, and this says that it is a {says}")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def skeleton(name: str) -> str:
    """The visual skeleton of a name: letters of other scripts replaced by the Latin ones they resemble (Unicode TR 39), without case,
    spaces and punctuation. Idempotent: the result of one pass (a letter without its accent) may be confusable itself."""
    while (seen := _one_pass(name)) != name:
        name = seen
    return name


def _one_pass(name: str) -> str:
    looks = "".join(_latin(letter) for letter in unicodedata.normalize("NFKC", name.translate(_INVISIBLE)))
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", looks) if not unicodedata.combining(letter))
    same = re.sub(r"[\W_]+", "", plain.casefold()).translate(_SAME)
    return same.replace("rn", "m").replace("vv", "w")


def _latin(letter: str) -> str:
    if letter.isascii():
        return letter
    from confusable_homoglyphs.confusables import confusables_data

    return next(
        (each["c"] for each in confusables_data.get(letter, ()) if each["c"].isascii() and each["c"].isalnum()), letter
    )


def not_reproduced(run: RunRecord, questions: pd.DataFrame, answers: pd.DataFrame) -> Iterator[str]:
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
        display, answered = baseline(name)
    except BadInput as error:
        yield str(error)
        return
    seen = skeleton(run.model.name)
    if called := next((own for own in OWN if own != display and skeleton(own) == seen), None):
        yield f"it is called {called}, and {run.request.model} answered: omit --name"
    expected = {
        (each.question_id, each.sample): (each.text, DELIVERIES[each.status])
        for each in map(answered, _requests(run, questions))
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


def _requests(run: RunRecord, questions: pd.DataFrame) -> Iterator[Request]:
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
                options=tuple(shown(list(row["options"]), turned)),
                question_type=str(row["question_type"]),
                answer=tuple((int(position) - turned) % count for position in row["answer"]),
                seed=SEED,
            )
