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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from tqdm import tqdm

from curation.images.image_index import replace_surrogates
from curation.images.image_table import MIN_CAPTION
from curation.writing.prompts import SYSTEM, WRITE, fill, one_line
from curation.writing.question_reading import problems, read_reply
from dataset_builders.errors import BadInput
from dataset_builders.files import lock, replace_file
from dataset_builders.journal import Journal, read_journal
from eval_harness.models.http.sending import permit_sending
from eval_harness.models.interface import Request, Response

JOURNAL = "journal.jsonl"
DRAFTS = "drafts.parquet"
FUNNEL = "funnel.json"
LETTERS = "letters.json"
MAX_TOKENS = 512


class Writer(Protocol):
    """A language model: `eval_harness.models.http.openai_chat.OpenAIChat`, or anything that answers requests the same
    way."""

    name: str

    def generate(self, requests: list[Request]) -> Iterator[Response]: ...


@dataclass(frozen=True)
class Asking:
    """How questions are asked for. The paper gives no temperature; 1.0 is the API's own default and lets a second try
    differ."""

    tries: int = 3
    temperature: float = 1.0
    min_caption: int = MIN_CAPTION
    seed: int = 0
    price: tuple[float, float] | None = None
    """Price of a million tokens in and out."""
    send: bool = False
    """Whether texts may be sent to a server that is not on this machine."""

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise BadInput(f"--tries {self.tries}: give a whole number from 1.")
        if not 0 <= self.temperature <= 2:
            raise BadInput(f"--temperature {self.temperature}: give a number from 0 to 2.")


def ask(
    model: Writer,
    prompts: dict[str, str],
    sample: int,
    asking: Asking,
    journal: Path,
    desc: str,
    quiet: bool | None,
    system: str | None = SYSTEM,
) -> Iterator[dict[str, Any]]:
    """Put prompts (id -> text) to the model; yields each reply as it comes, after it is in the journal.

    Raises BadInput where another process is adding to the journal.
    """
    if prompts and getattr(model, "is_api", False):
        size = f"{len(prompts):,} texts ({desc}: prompts with what they are about; {sum(map(len, prompts.values())):,} characters)"
        permit_sending(model.name, getattr(model, "base_url", None), lambda: size, asking.send)
    requests = [
        Request(
            key,
            sample,
            text,
            None,
            (),
            "single",
            max_tokens=MAX_TOKENS,
            temperature=asking.temperature,
            seed=asking.seed,
            system=system,
        )
        for key, text in prompts.items()
    ]
    with lock(journal.parent, journal.name), Journal(journal) as replies:
        for response in tqdm(model.generate(requests), total=len(requests), desc=desc, unit="reply", disable=quiet):
            entry = {
                "id": response.question_id,
                "try": response.sample,
                "status": response.status,
                "reply": replace_surrogates(response.text),
                "error": replace_surrogates(response.error) if response.error else response.error,
                "tokens": list(response.usage) if response.usage else None,
                "model": model.name,
            }
            replies.append(entry)
            yield entry


def write_questions(
    pairs: pd.DataFrame, captions: dict[str, str], model: Writer, out: Path, asking: Asking, quiet: bool | None = None
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
        _same_pairs(out, wanted)
        outcome = _Outcome(wanted, read_journal(journal))
        failed: set[str] = set()  # the server was with_retries asked already; the next run asks again
        for number in range(asking.tries):
            todo = {
                key: prompts[key]
                for key in outcome.open(asking.tries)
                if outcome.tried[key] <= number and key not in failed
            }
            if todo:
                for entry in ask(model, todo, number, asking, journal, f"writing (try {number + 1})", quiet):
                    outcome.take(entry)
                    if entry["status"] == "failed":
                        failed.add(entry["id"])
        _write_drafts(out / DRAFTS, wanted, outcome, asking.seed)
        funnel = {"pairs": len(table), "short_caption": int((~long_enough).sum()), **outcome.counts(asking)}
        replace_file(out / FUNNEL, lambda path: path.write_text(json.dumps(funnel, indent=1) + "\n"))
    return funnel


def _same_pairs(out: Path, wanted: pd.DataFrame) -> None:
    """A journal belongs to the images and captions it was asked about."""
    digest = {
        row["pair_id"]: hashlib.sha256(
            "\0".join((row["image_1"], row["image_2"], row["caption_1"], row["caption_2"])).encode()
        ).hexdigest()[:16]
        for row in records(wanted)
    }
    file = out / "asked.json"
    if file.is_file():
        before = json.loads(file.read_text())
        changed = [key for key, value in digest.items() if before.get(key, value) != value]
        if changed:
            raise BadInput(
                f"{out}: pair {changed[0]} and {len(changed) - 1} more had other images or captions when asked about. Give another --out."
            )
        digest = before | digest
    replace_file(file, lambda path: path.write_text(json.dumps(digest) + "\n"))


class _Outcome:
    """What became of each pair so far."""

    def __init__(self, wanted: pd.DataFrame, entries: Iterable[dict[str, Any]]) -> None:
        self.captions = {row["pair_id"]: (row["caption_1"], row["caption_2"]) for row in records(wanted)}
        self.tried: Counter[str] = Counter()
        self.good: dict[str, Any] = {}
        self.why: dict[str, str] = {}
        self.tokens = [0, 0]
        self.replies = 0
        for entry in entries:
            self.take(entry)

    def take(self, entry: dict[str, Any]) -> None:
        key = entry["id"]
        if entry["tokens"]:
            self.tokens = [self.tokens[0] + entry["tokens"][0], self.tokens[1] + entry["tokens"][1]]
        if key not in self.captions or key in self.good:
            return
        if entry["status"] == "failed":
            self.why[key] = "no reply from the server"
            return
        self.replies += 1
        self.tried[key] += 1
        if entry["status"] == "refused":
            self.why[key] = "refused by the model"
            return
        draft, wrong = read_reply(entry["reply"])
        if draft is not None:
            wrong = problems(draft, self.captions[key])
        if wrong:
            self.why[key] = wrong[0].split(" (")[0]
        else:
            self.good[key] = draft
            self.why.pop(key, None)

    def open(self, tries: int) -> list[str]:
        """Pairs that may be asked about once more."""
        return [key for key in self.captions if key not in self.good and self.tried[key] < tries]

    def counts(self, asking: Asking) -> dict[str, Any]:
        reasons = Counter(self.why.values())
        cost = None
        if asking.price:
            cost = round((self.tokens[0] * asking.price[0] + self.tokens[1] * asking.price[1]) / 1e6, 4)
        return {
            "asked": len(self.captions),
            "written": len(self.good),
            "not_written": dict(sorted(reasons.items())),
            "replies": self.replies,
            "tokens_in": self.tokens[0],
            "tokens_out": self.tokens[1],
            "cost": cost,
        }


def _write_drafts(path: Path, wanted: pd.DataFrame, outcome: _Outcome, seed: int) -> None:
    """The pairs with a good question; option A is right for image 1 in every second of them."""
    letters = _letters(path.parent, list(outcome.good), seed)
    rows = []
    for key in (key for key in wanted.index if key in outcome.good):
        draft = outcome.good[key]
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
    given: dict[str, str] = {}
    if file.is_file():
        given = json.loads(file.read_text())
    elif (out / DRAFTS).is_file():  # made before letters were kept
        drafts = pd.read_parquet(out / DRAFTS)
        given = dict(zip(drafts["pair_id"], drafts["correct_1"], strict=True))
    used = Counter(given.values())
    new = [key for key in good if key not in given]
    for key in sorted(new, key=lambda key: hashlib.sha256(f"{seed} {key}".encode()).digest()):
        given[key] = "A" if used["A"] <= used["B"] else "B"
        used[given[key]] += 1
    replace_file(file, lambda partial: partial.write_text(json.dumps(given) + "\n"))
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
