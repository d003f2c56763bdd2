"""Has a language model write one question per confusing pair (MediConfusion, section 2.2, prompt A.1), checks it, and
asks again where it is no good.

A questions folder holds `journal.jsonl` (every reply, appended as it comes: a killed run goes on and pays nothing
twice), `drafts.parquet` (the pairs with a good question), `letters.json` (which option is right for the first image of
each pair, once and for all) and `funnel.json` (how many pairs fell at each step, tokens, cost).

See also: reading and judging a reply (`question_reading.py`), categories and patterns (`categories.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd

from curation.writing.asking import Asking, Writer, ask_until_good
from curation.writing.prompts import WRITE, fill, one_line
from curation.writing.question_reading import Draft, problems, read_reply
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, replace_file, write_json
from dataset_builders.journal import read_journal

JOURNAL = "journal.jsonl"
DRAFTS = "drafts.parquet"
FUNNEL = "funnel.json"
LETTERS = "letters.json"
REVIEWS = "reviews.jsonl"
"""What reviewers said; from then on no question may change."""


def write_questions(
    pairs: pd.DataFrame, captions: dict[str, str], model: Writer, out: Path, asking: Asking
) -> dict[str, Any]:
    """Have a question written for each pair whose captions are both long enough; returns the funnel's counts.

    pairs: i, j, sim_med, sim_gen, image_1, image_2. captions: image -> caption. A pair is asked about up to
    `asking.tries` times until its question is good; refusals of the model count as tries, failures of the server do not
    and are asked again by the next run. The right option of image 1 is A in every second pair (in an order drawn from
    the seed), so that no position gives the answer away.
    """
    if not len(pairs):
        raise BadInput(
            "there are no pairs to write questions for. Search with other thresholds (`medprobe curate pairs`)."
        )
    table = pairs.reset_index(drop=True).assign(
        pair_id=[f"{i}-{j}" for i, j in zip(pairs["i"], pairs["j"], strict=True)],
        caption_1=[captions.get(image, "").strip() for image in pairs["image_1"]],
        caption_2=[captions.get(image, "").strip() for image in pairs["image_2"]],
    )
    long_enough = (table["caption_1"].str.len() >= asking.min_caption) & (
        table["caption_2"].str.len() >= asking.min_caption
    )
    wanted = table[long_enough].set_index("pair_id", drop=False)
    prompts = {
        row["pair_id"]: fill(
            WRITE, caption_of_image_1=one_line(row["caption_1"]), caption_of_image_2=one_line(row["caption_2"])
        )
        for row in records(wanted)
    }
    journal = out / JOURNAL
    with lock(out, "write"):
        _same_asking(out, wanted, model.name)
        about = {row["pair_id"]: (row["caption_1"], row["caption_2"]) for row in records(wanted)}
        replies = ask_until_good(
            model, prompts, lambda key, entry: _judged(entry, about[key])[0], asking, journal, "writing"
        )
        _write_drafts(out / DRAFTS, wanted, replies.good, asking.seed)
        why = {key: _judged(entry, about[key])[1] for key, entry in replies.last.items()}
        why |= dict.fromkeys(replies.failed, "no reply from the server")
        tokens = [entry["tokens"] or (0, 0) for entry in read_journal(journal)]
        tokens_in, tokens_out = (sum(each[side] for each in tokens) for side in (0, 1))
        funnel = {
            "pairs": len(table),
            "short_caption": int((~long_enough).sum()),
            "asked": len(wanted),
            "written": len(replies.good),
            "not_written": dict(sorted(Counter(why.values()).items())),
            "replies": replies.tried.total(),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": asking.cost((tokens_in, tokens_out)),
        }
        write_json(out / FUNNEL, funnel, ensure_ascii=True)
    return funnel


def _same_asking(out: Path, wanted: pd.DataFrame, model: str) -> None:
    """Raises BadInput where the folder's pairs had other images or captions, or are reviewed and were asked of another model: what people
    have reviewed must not change. Another model is asked anew only for questions that have not been reviewed."""
    digest = {
        row["pair_id"]: hashlib.sha256(
            "\0".join((row["image_1"], row["image_2"], row["caption_1"], row["caption_2"])).encode()
        ).hexdigest()[:16]
        for row in records(wanted)
    }
    file = out / "asked.json"
    before: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"model": model, "pairs": {}}
    if before["model"] != model and (out / REVIEWS).is_file():
        raise BadInput(
            f"{out}: its questions were asked of {before['model']!r} and are reviewed. Give another --out for those of {model!r}."
        )
    changed = [key for key, value in digest.items() if before["pairs"].get(key, value) != value]
    if changed:
        raise BadInput(
            f"{out}: pair {changed[0]} and {len(changed) - 1} more had other images or captions when asked about. Give another --out."
        )
    write_json(file, {"model": model, "pairs": before["pairs"] | digest}, indent=None, ensure_ascii=True)


def _judged(entry: dict[str, Any], captions: tuple[str, str]) -> tuple[Draft | None, str]:
    """The draft of a reply, or None and in a few words why."""
    if entry["status"] == "refused":
        return None, "refused by the model"
    draft, wrong = read_reply(entry["reply"])
    if draft is not None:
        wrong = problems(draft, captions)
    return (None, wrong[0].split(" (")[0]) if wrong else (draft, "")


def _write_drafts(path: Path, wanted: pd.DataFrame, good: dict[str, Draft], seed: int) -> None:
    """The pairs with a good question; option A is right for image 1 in every second of them."""
    letters = _letters(path.parent, list(good), seed)
    rows = []
    for key in (key for key in wanted.index if key in good):
        draft = good[key]
        first, second = draft.options[draft.answers[0]], draft.options[draft.answers[1]]
        a, b = (first, second) if letters[key] == "A" else (second, first)
        rows.append(
            {
                **wanted.loc[key].to_dict(),
                "question": draft.question,
                "option_A": a,
                "option_B": b,
                "correct_1": letters[key],
                "correct_2": "B" if letters[key] == "A" else "A",
            }
        )
    columns = [*wanted.columns, "question", "option_A", "option_B", "correct_1", "correct_2"]
    replace_file(path, lambda partial: pd.DataFrame(rows, columns=columns).to_parquet(partial, index=False))


def _letters(out: Path, good: list[str], seed: int) -> dict[str, str]:
    """Which option is right for image 1, by pair. A letter once given stays, also when a later run adds pairs: reviewers fix
    options by their letter."""
    file = out / LETTERS
    given: dict[str, str] = json.loads(file.read_text()) if file.is_file() else {}
    used = Counter(given.values())
    new = [key for key in good if key not in given]
    for key in sorted(new, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest()):
        given[key] = "A" if used["A"] <= used["B"] else "B"
        used[given[key]] += 1
    write_json(file, given, indent=None, ensure_ascii=True)
    return given


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table as dictionaries."""
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def read_drafts(folder: Path) -> pd.DataFrame:
    """The drafts of a questions folder. Raises BadInput where there are none."""
    if not (folder / DRAFTS).is_file():
        raise BadInput(
            f"{folder}: holds no {DRAFTS}. Make it with `medprobe curate write PAIRS --table TABLE --model NAME --out {folder}`."
        )
    return pd.read_parquet(folder / DRAFTS)
