"""Prompt a language model and journal every reply as it arrives.

An interrupted run resumes from the journal, so that no reply is paid for twice.

The prompts below are those of MediConfusion's curation, as printed in its appendix A (ICLR 2025).
Placeholders, which the paper prints in bold, are written as **CAPITALS**. Line breaks due to the
width of the page are removed. In A.2, a closing quotation mark after "Other" that was never opened
is omitted.

See also: permission to send texts to a server (`eval_harness/models/http/chat_client.py`).
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tqdm import tqdm

from curation.images.image_table import MIN_CAPTION_CHARS
from dataset_builders.errors import replace_surrogates
from dataset_builders.files import Journal, lock_folder, read_journal
from eval_harness.models.http.chat_client import OPENAI_URL, permit_sending
from eval_harness.records.request import Request, Response

SYSTEM_PROMPT = "You are a helpful assistant expert in the medical domain."

QUESTION_PROMPT = """Here is the description of two medical images that I can see:
Image1: **CAPTION OF IMAGE 1**
Image2: **CAPTION OF IMAGE 2**
Your task is to create multiple-choice questions. Follow the rules below.
1. The question should be about a property that is clearly visible in the images.
2. It should be possible to answer the question by only looking at the images.
3. Pretend that you can only see one image. You are not allowed to refer to 'Image1', 'Image2' or 'images'. You should also not create questions that require comparing the two images.
4. There should be exactly two answer options. You have to come up with a question for which the answer is different for the two images.
5. The answer options should be clearly different.
Please provide the question and the two answer options in the following format:
Question: <YOUR QUESTION>
Option1: <ANSWER 1>
Option2: <ANSWER 2>
Also, please provide the correct answers to the question for the images corresponding to our captions in the following format:
Image1: <ANSWER>
Image2: <ANSWER>
Aim for simple, efficient and concise questions to best test someone's knowledge and understanding of the underlying concepts."""  # noqa: E501
"""Appendix A.1: the prompt for a question about a confusing pair."""

DISCOVER_PROMPT = """I have several medical images related to radiology that each one has a corresponding caption. I have listed the captions below. Can you go through the captions and categorize them? Please focus on the general categories.
**CAPTIONS**"""  # noqa: E501
"""Appendix A.2, first prompt; **CAPTIONS** becomes lines `Caption 0: ...` to `Caption 99: ...`."""

CATEGORY_PROMPT = """Caption: **IMAGE CAPTION**
The above caption describes a radiology image. To which of the following categories does this image belong? You should only name the category, and you do not need to specify your reasoning.
Categories: **CATEGORIES**"""  # noqa: E501
"""Appendix A.2, second prompt; `PROMPT_CATEGORIES` is the paper's list of categories."""

PROMPT_CATEGORIES = (
    "Cerebral", "Spinal", "Cardiac", "Gastrointestinal", "Musculoskeletal", "Vascular", "Pulmonary", "Head and Neck", "Breast", "Other",
)  # fmt: skip
"""The categories of appendix A.2, in the order of the second prompt."""

PATTERNS_PROMPT = """I am analyzing an image embedding model. I have several image pairs that each one has a corresponding two choice question. I know that the embedding model confuses the images about the corresponding question. Can you go through the questions, options, and image descriptions, trying to figure out some general patterns that the embedding model struggles with? Please focus on the visual features and generalize patterns that are important to vision models.
**PAIRS**"""  # noqa: E501
"""Appendix A.3; **PAIRS** is replaced by one `PATTERN_PAIR` per pair."""

PATTERN_PAIR = """Pair **NUMBER**
First image description: **IMAGE 1 CAPTION**
Second image description: **IMAGE 2 CAPTION**
Confusing multiple choice question: **QUESTION**"""
"""Appendix A.3: the block for one pair."""

MAX_PROMPT_TEXTS = 100
"""Maximum number of captions (A.2) or pairs (A.3) in one prompt."""


def fill_template(template: str, **values: str) -> str:
    """Replace the placeholders of a template.

    All placeholders are replaced in one pass, so that text in a value that looks like a placeholder
    stays.

    Args:
        template: text with placeholders **NAME**.
        values: value of each placeholder; names are in lower case, with `_` for a space.

    >>> values = {"image_1_caption": "x", "image_2_caption": "y", "question": "z"}
    >>> fill_template(PATTERN_PAIR, number="0", **values).splitlines()[0]
    'Pair 0'
    """
    by_name = {name.upper().replace("_", " "): value for name, value in values.items()}
    return re.sub(r"\*\*([A-Z0-9 ]+)\*\*", lambda match: by_name[match.group(1)], template)


def join_lines(text: str) -> str:
    """Join the lines of a text, since its line breaks would look like those of the prompt."""
    return " ".join(text.split())


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


def ask_until_valid(
    model: Writer,
    prompts: Mapping[str, str],
    parse: Callable[[str, dict[str, Any]], Parsed | None],
    asking: AskSettings,
    journal: Path,
    desc: str,
    system: str | None = SYSTEM_PROMPT,
) -> tuple[dict[str, Parsed], dict[str, dict[str, Any]]]:
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
        Prompt id -> parsed reply, for prompts with a valid reply; prompt id -> newest journal
        entry, for those without (status `failed`: the server did not answer in this run).

    Raises:
        BadInput: another process is writing to the journal.
    """
    valid: dict[str, Parsed] = {}
    unresolved: dict[str, dict[str, Any]] = {}
    tries_made: Counter[str] = Counter()

    def add_entry(entry: dict[str, Any]) -> None:
        key = entry["id"]
        # The journal may also contain replies to other prompts or from other models.
        if key not in prompts or key in valid or entry["model"] != model.name:
            return
        unresolved[key] = entry
        if entry["status"] != "failed":
            tries_made[key] += 1
            parsed = parse(key, entry)
            if parsed is not None:
                valid[key] = parsed
                del unresolved[key]

    for entry in read_journal(journal):
        if entry["status"] != "failed":
            add_entry(entry)
    # Each round sends all open prompts, so that requests run concurrently.
    for number in range(asking.tries):
        failed = {key for key, entry in unresolved.items() if entry["status"] == "failed"}
        open_prompts = {
            key: text
            for key, text in prompts.items()
            if key not in valid and key not in failed and tries_made[key] <= number
        }
        if open_prompts:
            for entry in _request_replies(
                model, open_prompts, number, asking, journal, f"{desc} (try {number + 1})", system
            ):
                add_entry(entry)
    return valid, unresolved


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
            max_tokens=MAX_TOKENS,
            temperature=asking.temperature,
            seed=asking.seed,
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
    entries, _ = ask_until_valid(
        model,
        prompts,
        lambda _, entry: entry,
        replace(asking, tries=1),
        journal,
        desc,
        system,
    )
    return {key: entries[key] for key in prompts if key in entries}
