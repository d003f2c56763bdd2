"""Have a language model write one question per confusing pair, and check it.

The prompt is that of MediConfusion's appendix A.1 (section 2.2). If a question fails the checks,
the prompt is sent again.

A questions folder has `journal.jsonl` (every reply as it arrives, so that an interrupted run
resumes and pays for nothing twice), `drafts.parquet` (the pairs with a question; once reviews
exist, no question changes) and `funnel.json` (number of pairs dropped at each step, tokens, cost).
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from curation.images.image_table import table_rows
from curation.writing.asking import QUESTION_PROMPT, AskSettings, Writer, ask_until_valid, fill_template, join_lines
from dataset_builders.errors import BadInput
from dataset_builders.files import lock_folder, read_journal, replace_file, write_json

COPIED_IN_QUESTION, COPIED_IN_OPTION = 10, 15
"""Number of consecutive words of a caption that a question or an option may not repeat.

An option may quote a finding, so its limit is higher. Of the 352 options that the paper's prompt
produced (dataset.json, AI_option_*), none repeats 15 words of a caption, and none of the questions
repeats 10.
"""
LENGTH_RATIO, LENGTH_GAP = 3.0, 40
"""An option counts as conspicuously long if it is longer than the other by this factor and by this
many characters.
"""

REPLY_FIELDS = ("question", "option1", "option2", "image1", "image2")
_FIELD = re.compile(
    r"^[\s*_#>`.\-\d)]*?(question|option\s*\d|image\s*\d)\s*[*_`]*\s*[:.)]\s*[*_`]*\s*(.*)$",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"(?:option\s*)?([12])(?:\s*[.:)–-]\s*(.*))?", re.IGNORECASE | re.DOTALL)
_REFERENCE = re.compile(
    r"\b(?:image|picture|figure|scan|radiograph|caption)s?\s*(?:[12]\b|one\b|two\b|[ab]\b)"
    r"|(?<!weighted )\bimages\b|\b(?:both|two|first|second|other) "
    r"(?:image|picture|scan|case|patient)s?\b"
    r"|\bcompar(?:e|ed|es|ing|ison)\b|\bthan the other(?: one)?\s*(?:[?.]|$)|\bcaptions?\b"
    r"|\bdescriptions?\b|\bunlike\b|\brespectively\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Draft:
    """A question as the model wrote it.

    Attributes:
        answers: index (0, 1) of the correct option for image 1 and for image 2.
    """

    question: str
    options: tuple[str, str]
    answers: tuple[int, int]


def parse_draft(reply: str) -> tuple[Draft | None, list[str]]:
    """Parse the first complete question in a reply.

    The parser accepts bold text, list markers, any letter case, blank lines, text around the
    fields, and "Option 1" instead of the option's text.

    Args:
        reply: the model's reply; text before a last </think> is ignored.

    Returns:
        The draft and an empty list, or None and the reasons why the reply is not valid.
    """
    fields: dict[str, str] = {}
    last_field = ""
    for line in reply.rpartition("</think>")[2].splitlines():
        match = _FIELD.match(line)
        if match:
            name = re.sub(r"\s", "", match.group(1)).lower()
            if name not in REPLY_FIELDS:
                return None, [
                    f"has {'a third image' if name.startswith('image') else 'more than two options'}",
                ]
            if name in fields:
                if len(fields) == 5:
                    break
                if name != "question":
                    return None, [f"field {name} is given twice"]
                fields = {}  # the model started over
            fields[name] = _strip_markup(match.group(2))
            last_field = name
        elif line.strip() and last_field and not fields[last_field]:
            fields[last_field] = _strip_markup(line)  # the text is on the line below its name

    missing = [name for name in REPLY_FIELDS if not fields.get(name)]
    if missing:
        return None, [f"no {', '.join(missing)}"]
    options = (fields["option1"], fields["option2"])
    if _normalize_option(options[0]) == _normalize_option(options[1]):
        return None, ["both options read the same"]
    answer_1, answer_2 = (_match_answer(fields[name], options) for name in ("image1", "image2"))
    if answer_1 is None or answer_2 is None:
        return None, ["an answer is neither option"]
    return Draft(fields["question"], options, (answer_1, answer_2)), []


def _strip_markup(text: str) -> str:
    """Remove Markdown and quotation marks around a text."""
    text = " ".join(text.replace("**", "").strip().strip("*_`").split()).strip('"“” ')
    # The prompt shows placeholders as <ANSWER>, so models may keep the brackets; a single < or > is
    # part of the text ("less than").
    return text[1:-1].strip() if text.startswith("<") and text.endswith(">") else text


def _normalize_option(text: str) -> str:
    return " ".join(text.casefold().split()).rstrip(".")


def _match_answer(answer: str, options: tuple[str, str]) -> int | None:
    """Return the index of the option that an answer names by text or number.

    Returns None if it names neither, or if its text and its number name different options.
    """
    texts = [_normalize_option(option) for option in options]
    if _normalize_option(answer) in texts:  # compare texts before numbers, since an option may be a number
        return texts.index(_normalize_option(answer))
    match = _NUMBERED.fullmatch(answer.strip())
    if not match:
        return None
    index, text = int(match[1]) - 1, _normalize_option(match[2] or "")
    return index if text in ("", texts[index]) else None


def find_problems(draft: Draft, captions: tuple[str, str]) -> list[str]:
    """Check a draft against the rules of prompt A.1, and for clues that give an answer away.

    Args:
        draft: the draft.
        captions: captions of image 1 and image 2.

    Returns:
        The problems; empty if there are none.
    """
    reference = next(filter(None, map(_REFERENCE.search, (draft.question, *draft.options))), None)
    # Naming both options is fine: "Is it a cyst or a mass?"
    is_named = [f" {_folded_text(option)} " in f" {_folded_text(draft.question)} " for option in draft.options]
    short, long = sorted(map(len, draft.options))
    problems = (
        (draft.answers[0] == draft.answers[1], "the answer is the same for both images"),
        (
            reference is not None,
            f"refers to images or compares ({reference.group().lower() if reference else ''!r})",
        ),
        (
            _copies_caption((draft.question,), captions, COPIED_IN_QUESTION)
            or _copies_caption(draft.options, captions, COPIED_IN_OPTION),
            "copies a caption",
        ),
        (is_named[0] != is_named[1], "the question names one of its options"),
        (
            long > LENGTH_RATIO * short and long - short > LENGTH_GAP,
            "one option is much longer than the other",
        ),
    )
    return [problem for applies, problem in problems if applies]


def _folded_text(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


def _copies_caption(texts: tuple[str, ...], captions: tuple[str, str], length: int) -> bool:
    """Return True if a text repeats `length` consecutive words of a caption."""
    for text in texts:
        words = _folded_text(text).split()
        runs = [f" {' '.join(words[start : start + length])} " for start in range(len(words) - length + 1)]
        if any(run in f" {_folded_text(caption)} " for caption in captions for run in runs):
            return True
    return False


REPLIES_FILE = "journal.jsonl"
DRAFTS_FILE = "drafts.parquet"
FUNNEL_FILE = "funnel.json"
REVIEWS_FILE = "reviews.jsonl"
"""Journal of the reviews; once it exists, no question may change."""
PAIR_COLUMNS = ("image_1", "image_2", "caption_1", "caption_2")


def write_questions(
    pairs: pd.DataFrame, captions: dict[str, str], model: Writer, out: Path, asking: AskSettings
) -> dict[str, Any]:
    """Have a model write a question for each pair whose captions are both long enough.

    For each pair, the prompt is sent until the question passes the checks, up to `asking.tries`
    times. A refusal by the model counts as a try; a failure of the server does not, and the next
    run repeats the request. A pair that has a question keeps it, with its letters. Only before the
    first review may a run with another model replace the questions.

    Args:
        pairs: columns i, j, sim_med, sim_gen, image_1, image_2.
        captions: image -> caption.
        model: the language model.
        out: questions folder.
        asking: settings of the requests.

    Returns:
        The counts in funnel.json.

    Raises:
        BadInput: there are no pairs, or a draft in `out` is about different images or captions.
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
    is_long_enough = (table["caption_1"].str.len() >= asking.min_caption) & (
        table["caption_2"].str.len() >= asking.min_caption
    )
    candidates = {row["pair_id"]: row for row in table_rows(table[is_long_enough])}

    with lock_folder(out, "write"):
        drafted = {row["pair_id"]: row for row in table_rows(read_drafts(out))} if (out / DRAFTS_FILE).is_file() else {}
        # Before the first review, a run with another model replaces the drafts.
        if not (out / REVIEWS_FILE).is_file():
            drafted = {key: row for key, row in drafted.items() if row["model"] == model.name}
        for key in candidates.keys() & drafted.keys():
            if any(drafted[key][column] != candidates[key][column] for column in PAIR_COLUMNS):
                raise BadInput(
                    f"{out}: the question about pair {key} is about different images or captions. Give another --out.",
                )

        # The id covers the captions, so that a pair with a changed caption gets a new request.
        open_rows = {_prompt_id(row): row for key, row in candidates.items() if key not in drafted}
        prompts = {
            key: fill_template(
                QUESTION_PROMPT,
                caption_of_image_1=join_lines(row["caption_1"]),
                caption_of_image_2=join_lines(row["caption_2"]),
            )
            for key, row in open_rows.items()
        }

        def judge(key: str, entry: dict[str, Any]) -> tuple[Draft | None, str]:
            return _judge_reply(entry, (open_rows[key]["caption_1"], open_rows[key]["caption_2"]))

        valid, unresolved = ask_until_valid(
            model,
            prompts,
            lambda key, entry: judge(key, entry)[0],
            asking,
            out / REPLIES_FILE,
            "writing",
        )
        new_rows = {key: open_rows[key] | {"model": model.name} for key in valid}
        letter_counts = Counter(row["correct_1"] for row in drafted.values())
        for key in sorted(
            new_rows,
            key=lambda key: hashlib.sha256(f"{asking.seed} {key}".encode()).digest(),
        ):
            # Option A is correct for image 1 in half of the pairs, so that its position does not
            # give the answer away.
            letter = "A" if letter_counts["A"] <= letter_counts["B"] else "B"
            letter_counts[letter] += 1
            new_rows[key] |= _order_options(valid[key], letter)
        drafts = pd.DataFrame(
            [*drafted.values(), *new_rows.values()],
            columns=[*table.columns, *DRAFT_COLUMNS],
        )
        replace_file(out / DRAFTS_FILE, lambda partial: drafts.to_parquet(partial, index=False))

        reasons = Counter(judge(key, entry)[1] for key, entry in unresolved.items())
        entries = read_journal(out / REPLIES_FILE)
        tokens_in, tokens_out = (sum(entry["tokens"][side] for entry in entries if entry["tokens"]) for side in (0, 1))
        # The journal includes the replies of earlier runs, so the cost includes theirs.
        price_in, price_out = asking.price or (0, 0)
        cost = round((tokens_in * price_in + tokens_out * price_out) / 1e6, 4)
        funnel = {
            "pairs": len(table),
            "short_caption": int((~is_long_enough).sum()),
            "asked": len(candidates),
            "had_a_question": len(candidates.keys() & drafted.keys()),
            "written": len(candidates.keys() & set(drafts["pair_id"])),
            "not_written": dict(sorted(reasons.items())),
            "replies": sum(entry["status"] != "failed" for entry in entries),
            "tokens_in": tokens_in,
            "tokens_out": tokens_out,
            "cost": cost if asking.price else None,
        }
        write_json(out / FUNNEL_FILE, funnel, ensure_ascii=True)
    return funnel


DRAFT_COLUMNS = ("model", "question", "option_A", "option_B", "correct_1", "correct_2")


def _prompt_id(row: dict[str, Any]) -> str:
    """Return a pair's id in the journal: its own id and a digest of its images and captions."""
    content = "\0".join(row[column] for column in PAIR_COLUMNS)
    return f"{row['pair_id']} {hashlib.sha256(content.encode()).hexdigest()[:16]}"


def _judge_reply(entry: dict[str, Any], captions: tuple[str, str]) -> tuple[Draft | None, str]:
    """Return (draft, "") for a valid reply in a journal entry; otherwise (None, short reason)."""
    if entry["status"] in ("refused", "failed"):
        return None, "refused by the model" if entry["status"] == "refused" else "no reply from the server"
    draft, problems = parse_draft(entry["reply"])
    if draft is not None:
        problems = find_problems(draft, captions)
    return (None, problems[0].split(" (")[0]) if problems else (draft, "")


def _order_options(draft: Draft, letter: str) -> dict[str, str]:
    """Return a draft's question, its ordered options and correct letters.

    `letter` is the correct letter for image 1."""
    option_1, option_2 = draft.options[draft.answers[0]], draft.options[draft.answers[1]]
    option_a, option_b = (option_1, option_2) if letter == "A" else (option_2, option_1)
    return {
        "question": draft.question,
        "option_A": option_a,
        "option_B": option_b,
        "correct_1": letter,
        "correct_2": "B" if letter == "A" else "A",
    }


def read_drafts(folder: Path) -> pd.DataFrame:
    """Read the drafts of a questions folder. Raises BadInput if there are none."""
    if not (folder / DRAFTS_FILE).is_file():
        raise BadInput(
            f"{folder}: contains no {DRAFTS_FILE}. Make it with `medprobe curate write PAIRS "
            "--table TABLE "
            f"--model NAME --out {folder}`."
        )
    return pd.read_parquet(folder / DRAFTS_FILE)
