"""Prompt a language model and journal every reply as it arrives.

An interrupted run resumes from the journal, so that no reply is paid for twice.

See also: the prompts (`question_writing.py`, `caption_facts.py`, `categories.py`), permission to
send texts to a server (`eval_harness/models/http/chat_client.py`).
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
from dataset_builders.errors import replace_surrogates
from dataset_builders.files import lock_folder
from dataset_builders.journal import Journal, read_journal
from eval_harness.models.http.chat_client import OPENAI_URL, permit_sending
from eval_harness.records.request import Request, Response

Parsed = TypeVar("Parsed")
MAX_TOKENS = 512
"""Output-token limit per reply."""


class Writer(Protocol):
    """A language model, such as `eval_harness.models.http.openai_chat.OpenAIChat`."""

    name: str

    def generate(self, requests: list[Request]) -> Iterator[Response]:
        """Yield a response per request, in any order."""
        ...


@dataclass(frozen=True)
class AskSettings:
    """Settings of requests to a model.

    The paper states no temperature; 1.0 is the API's default, and lets a second try give another
    reply.
    """

    tries: int = 3
    temperature: float = 1.0
    min_caption: int = MIN_CAPTION_CHARS
    seed: int = 0
    price: tuple[float, float] | None = None
    """Price per million input and output tokens."""
    send: bool = False
    """True if texts may be sent to a server that is not on this machine."""


@dataclass
class Replies(Generic[Parsed]):
    """Outcome of each prompt.

    Attributes:
        good: prompt id -> parsed reply, for prompts with a valid reply.
        unresolved: prompt id -> newest journal entry, for prompts without a valid reply (status
            `failed`: the server did not answer in this run).
        tried: prompt id -> number of replies so far.
    """

    good: dict[str, Parsed] = field(default_factory=dict)
    unresolved: dict[str, dict[str, Any]] = field(default_factory=dict)
    tried: Counter[str] = field(default_factory=Counter)

    def is_open(self, key: str, number: int) -> bool:
        """Return True if a prompt needs a further try.

        Args:
            key: id of the prompt.
            number: number of the try, from 0.
        """
        has_failed = key in self.unresolved and self.unresolved[key]["status"] == "failed"
        return key not in self.good and self.tried[key] <= number and not has_failed


def ask_until_valid(
    model: Writer,
    prompts: Mapping[str, str],
    parse: Callable[[str, dict[str, Any]], Parsed | None],
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None = SYSTEM_PROMPT,
) -> Replies[Parsed]:
    """Send each prompt to a model until the reply is valid, up to `asking.tries` times.

    Earlier replies of this model in the journal count as tries. So does a refusal by the model, but
    not a failure of the server; the next run repeats such a request.

    Args:
        model: the language model.
        prompts: id -> text.
        parse: called with a prompt's id and a journal entry; returns the parsed reply, or None if
            it is not valid.
        asking: settings of the requests.
        journal: file of the replies.
        desc: label of the progress bar.
        system: system message.

    Returns:
        The outcome of each prompt.

    Raises:
        BadInput: another process is writing to the journal.
    """
    replies: Replies[Parsed] = Replies()

    def add_entry(entry: dict[str, Any]) -> None:
        key = entry["id"]
        # The journal may also contain replies to other prompts or from other models.
        if key not in prompts or key in replies.good or entry["model"] != model.name:
            return
        replies.unresolved[key] = entry
        if entry["status"] != "failed":
            replies.tried[key] += 1
            parsed = parse(key, entry)
            if parsed is not None:
                replies.good[key] = parsed
                del replies.unresolved[key]

    for entry in read_journal(journal):
        if entry["status"] != "failed":
            add_entry(entry)
    # Each round sends all open prompts, so that requests run concurrently.
    for number in range(asking.tries):
        open_prompts = {key: text for key, text in prompts.items() if replies.is_open(key, number)}
        if open_prompts:
            for entry in _request_replies(
                model,
                open_prompts,
                number,
                asking,
                journal,
                f"{desc} (try {number + 1})",
                system,
            ):
                add_entry(entry)
    return replies


def _request_replies(
    model: Writer,
    prompts: dict[str, str],
    sample: int,
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None,
) -> Iterator[dict[str, Any]]:
    """Send prompts to a model; yield the journal entry of each reply once it is written."""
    if not getattr(model, "is_local", True):
        volume = (
            f"{len(prompts):,} texts ({desc}: prompts with what they are about; "
            f"{sum(map(len, prompts.values())):,} characters)"
        )
        permit_sending(
            model.name,
            getattr(model, "base_url", OPENAI_URL),
            lambda: volume,
            asking.send,
        )
    settings: dict[str, Any] = {
        "max_tokens": MAX_TOKENS,
        "temperature": asking.temperature,
        "seed": asking.seed,
    }
    # The try is passed as the sample's number, so that a server's cache does not repeat the last
    # reply.
    requests = [
        Request(
            key,
            sample,
            text,
            None,
            (),
            "single",
            system=system,
            **settings,
        )
        for key, text in prompts.items()
    ]
    with lock_folder(journal.parent, journal.name), Journal(journal) as replies:
        for response in tqdm(
            model.generate(requests),
            total=len(requests),
            desc=desc,
            unit="reply",
            disable=None,
        ):
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
    """Send each prompt to a model once, unless the journal has a reply to it.

    Args:
        model: the language model.
        prompts: id -> text.
        asking: settings of the requests; `tries` is ignored.
        journal: file of the replies.
        desc: label of the progress bar.
        system: system message.

    Returns:
        Id -> journal entry. Prompts that the server did not answer are left out; the next call
        sends them again.
    """
    journal.parent.mkdir(parents=True, exist_ok=True)
    replies = ask_until_valid(
        model,
        prompts,
        lambda _, entry: entry,
        replace(asking, tries=1),
        journal,
        desc,
        system,
    )
    return {key: replies.good[key] for key in prompts if key in replies.good}
