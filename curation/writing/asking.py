"""Prompt a language model and journal every reply as it comes: a killed run resumes and pays for nothing twice.

See also: what is asked (`question_writing.py`, `caption_facts.py`, `categories.py`), permission to send (`models/http/chat_client.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from tqdm import tqdm

from curation.images.image_table import MIN_CAPTION_CHARS
from curation.writing.paper_prompts import SYSTEM_PROMPT
from dataset_builders.files import lock_folder
from dataset_builders.journal import Journal, read_journal
from eval_harness.models.http.chat_client import OPENAI_URL, permit_sending
from eval_harness.records.names import replace_surrogates
from eval_harness.records.request import Request, Response

Parsed = TypeVar("Parsed")
MAX_TOKENS = 512


class Writer(Protocol):
    """A language model: `eval_harness.models.http.openai_chat.OpenAIChat`, or anything that answers requests the same
    way."""

    name: str

    def generate(self, requests: list[Request]) -> Iterator[Response]: ...


@dataclass(frozen=True)
class AskSettings:
    """How questions are asked for. The paper gives no temperature; 1.0 is the API's own default and lets a second try
    differ."""

    tries: int = 3
    temperature: float = 1.0
    min_caption: int = MIN_CAPTION_CHARS
    seed: int = 0
    price: tuple[float, float] | None = None
    """Price of a million tokens in and out."""
    send: bool = False
    """True if texts may be sent to a server that is not on this machine."""


@dataclass
class Replies(Generic[Parsed]):
    """Outcome of each prompt: `good`, as read; `last`, the newest reply of those that are not (`failed`: no server answered in this
    run); how often each was `tried`."""

    good: dict[str, Parsed] = field(default_factory=dict)
    last: dict[str, dict[str, Any]] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)

    def is_open(self, key: str, number: int) -> bool:
        """True where a prompt has no good reply, and its try of this number is still to come in this run."""
        has_failed = key in self.last and self.last[key]["status"] == "failed"
        return key not in self.good and self.tried[key] <= number and not has_failed


def ask_until_valid(
    model: Writer,
    prompts: Mapping[str, str],
    read: Callable[[str, dict[str, Any]], Parsed | None],
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None = SYSTEM_PROMPT,
) -> Replies[Parsed]:
    """Put each prompt (id -> text) to the model up to `asking.tries` times, until `read` (id, journal entry) finds its reply good.

    Replies of this model in the journal count. A refusal of the model is a try, a failure of the server is not: the next run asks again.
    Raises BadInput if another process is adding to the journal.
    """
    found: Replies[Parsed] = Replies()

    def take(entry: dict[str, Any]) -> None:
        key = entry["id"]
        if key not in prompts or key in found.good or entry["model"] != model.name:
            return
        found.last[key] = entry
        if entry["status"] != "failed":
            found.tried[key] += 1
            good = read(key, entry)
            if good is not None:
                found.good[key] = good
                del found.last[key]

    for entry in read_journal(journal):
        if entry["status"] != "failed":
            take(entry)
    for number in range(asking.tries):
        todo = {key: text for key, text in prompts.items() if found.is_open(key, number)}
        if todo:
            for entry in _request_replies(model, todo, number, asking, journal, f"{desc} (try {number + 1})", system):
                take(entry)
    return found


def _request_replies(
    model: Writer,
    prompts: dict[str, str],
    sample: int,
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None,
) -> Iterator[dict[str, Any]]:
    """Each reply as it comes, after it is in the journal."""
    if getattr(model, "is_api", False):
        size = f"{len(prompts):,} texts ({desc}: prompts with what they are about; {sum(map(len, prompts.values())):,} characters)"
        permit_sending(model.name, getattr(model, "base_url", OPENAI_URL), lambda: size, asking.send)
    settings: dict[str, Any] = {"max_tokens": MAX_TOKENS, "temperature": asking.temperature, "seed": asking.seed}
    requests = [
        Request(key, sample, text, None, (), "single", system=system, **settings) for key, text in prompts.items()
    ]
    with lock_folder(journal.parent, journal.name), Journal(journal) as replies:
        for response in tqdm(model.generate(requests), total=len(requests), desc=desc, unit="reply", disable=None):
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


def ask_once(
    model: Writer,
    prompts: Mapping[str, str],
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None = SYSTEM_PROMPT,
) -> dict[str, dict[str, Any]]:
    """The model's reply (journal entry) to each prompt (id -> text): those of the journal, and what is asked now. Failed ones are asked
    anew by the next call; what no server answered is not in it."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    replies = ask_until_valid(model, prompts, lambda _, entry: entry, replace(asking, tries=1), journal, desc, system)
    return {key: replies.good[key] for key in prompts if key in replies.good}
