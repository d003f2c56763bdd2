"""The rules that read a response, as one table (`RULES`): its order is what this reader promises. The first that finds anything decides."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from dataset_builders.errors import BadInput
from dataset_builders.schema import LETTERS
from eval_harness.reader import yes_no
from eval_harness.reader.assertions import asserted, by_words
from eval_harness.reader.declining import cannot_know, declines, undecided
from eval_harness.reader.letters import AFTER_OPTION, Found, position, ticked, verdicts, whole_letters
from eval_harness.reader.mentions import Mention, Response
from eval_harness.reader.options import OptionTexts, option_texts
from eval_harness.reader.reasoning import split_reasoning
from eval_harness.reader.statements import denied, denied_after, denied_before, in_condition, last_statement, supposed
from eval_harness.reader.text import is_error, marked_answers, plain, without_markers


@dataclass(frozen=True, slots=True)
class Reading:
    """What was read: positions of the options chosen (ascending), the status, and the rule that decided."""

    choice: tuple[int, ...]
    status: str
    rule: str


LONGEST = 8_000
"""Characters up to which a response is read whole; of a longer one the first quarter and the last three quarters of as many."""


def read_choice(
    response: str, options: Sequence[str], question_type: str = "single", finish_reason: str | None = None
) -> Reading:
    """Read which option(s) a response chooses, by what it says.

    `options` in the order shown (letters follow the position); `question_type`: `single`, `multiple` or `yes_no` (options `yes`, `no` in
    any case and order). `finish_reason` "length": the output limit cut the response, so that only an explicit answer is read; the same
    where it stops inside its reasoning. Status: `answered` with a choice; else `irrelevant` (nothing to read, or more than one reading),
    `refused` (declines), `truncated`, or `failed` (an error text stands where the response should be). Never guesses.

    >>> read_choice("Option A is wrong; the correct option is B", ["left hip", "right hip"])
    Reading(choice=(1,), status='answered', rule='statement')

    Raises BadInput for more than 26 options or an unknown question type.
    """
    if len(options) > len(LETTERS):
        raise BadInput(f"{len(options)} options: no benchmark has more than {len(LETTERS)}. Check the dataset.")
    if question_type not in ("single", "multiple", "yes_no"):
        raise BadInput(f"question_type {question_type!r}: unknown. Available: single, multiple, yes_no.")
    texts = option_texts(tuple(options))
    if question_type == "yes_no" and {" ".join(words) for words in texts.words} != {"yes", "no"}:
        raise BadInput(f"options {list(options)}: a yes/no question needs the options yes and no. Rebuild the dataset.")
    split = split_reasoning(response)
    raw = _ends(without_markers(split.answer))
    cut = split.unfinished or finish_reason == "length"
    text = plain(raw)
    if not text:
        rule = "unfinished reasoning" if split.unfinished else "cut off"
        return Reading((), "truncated", rule) if cut else _nothing("empty")
    if is_error(text):
        return Reading((), "failed", "error text")
    if "print(" in raw and _PROGRAM.fullmatch(raw):
        return _nothing("no option named")
    reading = _read(raw, text, texts, question_type, cut)
    if cut and reading.status == "irrelevant":
        return Reading((), "truncated", "unfinished reasoning" if split.unfinished else "cut off")
    return reading


def _ends(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST // 4] + "\n" + text[-3 * LONGEST // 4 :]


def _read(raw: str, text: str, texts: OptionTexts, question_type: str, cut: bool) -> Reading:
    rules = EXPLICIT if cut else RULES
    if (first := _first_turn(raw)) is not None:
        reading = _marked(first, texts, question_type) or apply(
            Response(plain(first), first, texts, question_type), EXPLICIT
        )
        if reading.status == "answered":
            return reading
    return _marked(raw, texts, question_type) or apply(Response(text, raw, texts, question_type), rules)


def _marked(raw: str, texts: OptionTexts, question_type: str) -> Reading | None:
    """What a JSON field, `<answer>` tags or a box hold; an explicit statement after them, or where they hold no option, comes first."""
    marked = marked_answers(raw)
    if not marked:
        return None
    content, after = marked[0]
    text = plain(content)
    reading = apply(Response(text, content, texts, question_type)) if text else _nothing("empty")
    if reading.status == "answered":
        later = apply(Response(plain(after), after, texts, question_type), STATED) if after.strip() else reading
        return later if later.status == "answered" else reading
    for earlier, _ in marked[1:]:
        letters = whole_letters(plain(earlier), texts.count, question_type == "multiple")
        if letters is not None and question_type != "yes_no" and len(letters) == 1 and letters[0] >= 0:
            return Reading(letters, "answered", "whole response")
    if content.strip().lower() in ("", "null", "none"):
        return reading
    stated = apply(Response(plain(raw), raw, texts, question_type), STATED)
    if stated.status == "answered":
        return stated
    return reading if reading.status == "refused" or reading.rule != "no option named" else _nothing("no option marked")


_PROGRAM = re.compile(r"\s*(?:#|def |import |from |[a-z]\w*(?:, \w+)* = ).*\n\s*print\([^\n]*\)\s*", re.DOTALL)
"""A program that would print the answer, and nothing else."""
_NEXT_QUESTION = re.compile(
    r"[\n.!?](?:(?:(?<=\n)[ \t*#>]{0,8}|[ ]{1,4})(?:(?:next )?question|q|user|human|instruction)\s*\d{0,3}\s*:"
    r"|(?<=\n)#{1,6} (?:\w+ ){0,2}(?:question|example|instruction)s?\b)",
    re.IGNORECASE,
)
_WORD_AND_QUESTION = re.compile(r"\s*(\w{1,12}[.!]?)[^\S\n]*\n\s*[A-Z][^\n?.!]{4,200}\?\s*(?:\n|$)")
"""A line of one word and a question ("Yes.\\n\\nIs there a person in the image?")."""


def _first_turn(raw: str) -> str | None:
    """What stands before a question that the model went on to put to itself ("B\\nQuestion: ...")."""
    if (turn := _WORD_AND_QUESTION.match(raw)) is not None:
        return turn[1]
    if (turn := _NEXT_QUESTION.search(raw, 1)) is not None:
        return raw[: turn.start() + 1].strip() or None
    return None


def _nothing(rule: str) -> Reading:
    return Reading((), "irrelevant", rule)


# --- the rules ---


@dataclass(frozen=True, slots=True)
class Rule:
    """A row of the table: `find` returns positions, () for more than one option without saying which, None where it does not apply.
    `stage`: `explicit` rules also read a response that was cut off; `declining` ones make it `refused`, `none` ones read nothing."""

    name: str
    stage: Literal["explicit", "declining", "implied", "none"]
    find: Callable[[Response], Found]
    decides: str
    example: str


def apply(said: Response, rules: Sequence[Rule] | None = None) -> Reading:
    """The first rule that finds anything decides."""
    if said.options.lone and not said.options.yes_no:
        return _read_lone(said, rules or RULES)
    if not said.multiple and _only_lists(said):
        return _nothing("every option listed")
    for rule in rules or RULES:
        if (found := rule.find(said)) is None:
            continue
        if rule.stage == "declining":
            return Reading((), "refused", rule.name)
        return _nothing(rule.name) if rule.stage == "none" else _decide(found, said.multiple, rule.name)
    return _nothing("no option named")


def _decide(found: tuple[int, ...], multiple: bool, rule: str) -> Reading:
    choice = tuple(sorted(set(found)))
    if any(place < 0 for place in choice):
        return _nothing("letter outside the options")
    if not choice or (len(choice) > 1 and not multiple):
        return _nothing("more than one option")
    return Reading(choice, "answered", rule)


_CUE = re.compile(
    r"[\s\"'(\[#:]*(?:(?:based on|according to|looking at|judging (?:by|from)|from|given|considering"
    r"|in)\b[^.,:\n]{1,80}[,:]\s*)?"
    r"(?:(?:the |my )?(?:(?:final|correct|best|right) )*(?:answer|ans|choice|diagnosis|option)\b(?: is)?\s*[:=–-]?\s*"
    r"|(?:it|this) is (?:an? |the )?)?",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:(?:option |选项 ?)?[(\[\"']*([A-Z])|(?:option|choice|statement) (\d{1,2}))[)\]\"']*(?:\s*[.:)\]\"'–-]\s*|\s+)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\W*(?:option|choice|statement)\s+(\d{1,2})\W*", re.IGNORECASE)
_CROSSES = frozenset("✗❌✘")


def _whole(said: Response) -> Found:
    text, texts = said.text, said.options
    if text[:1] in _CROSSES:
        return ()
    word = yes_no.whole(text) if texts.yes_no else None
    if word is not None:
        return (texts.yes_no.index(word),) if word else ()
    if said.lettered and (found := whole_letters(text, said.count, said.multiple)) is not None:
        return found if _named_whole(text, texts) is None else (_named_whole(text, texts),)  # type: ignore[return-value]
    if len(text) > 2 * texts.longest + 100:
        return None
    cue = _CUE.match(text)
    rest = text[cue.end() :] if cue else text
    for each in (text, rest):
        if (place := _named_whole(each, texts)) is not None:
            return (place,)
    if (label := _LABEL.match(rest)) and (place := texts.named(rest[label.end() :])) is not None:
        own = LETTERS.find(label[1].upper()) if label[1] else int(label[2]) - 1
        return (place,) if own == place or not said.lettered else ()
    if said.lettered and rest != text and (found := whole_letters(rest, said.count, said.multiple)) is not None:
        return found
    if (numbered := _NUMBERED.fullmatch(text)) and said.lettered and not texts.numeric:
        place = int(numbered[1]) - 1
        return (place,) if 0 <= place < said.count else (-1,)
    return None


def _named_whole(text: str, texts: OptionTexts) -> int | None:
    return texts.named(text) if len(text) <= 2 * texts.longest + 60 else None


def _statement(said: Response) -> Found:
    """The last answer statement; one before the verdicts on each option does not count."""
    start = verdicts(said.text, said.count, said.multiple)[1] if said.lettered else 0
    found = last_statement(said, start)
    if found == (-1,) and said.options.yes_no:
        found = None
    return _word(said, yes_no.stated) if found is None else found


_OPENS_LIST = re.compile(
    r"\b(?:options?|choices?|following|each|all|these|those|are|were|include\w*|consider\w*)\b[^\n]*:$"
)


def _last_line(said: Response) -> Found:
    """A last line that is nothing but one option, after a sentence and not at the end of a list of options."""
    before, _, line = said.text.rstrip().rpartition("\n")
    if not before or said.multiple or len(line) > said.options.longest + 30:
        return None
    above = before.rpartition("\n")[2].strip()
    if _OPENS_LIST.search(above.lower()) or not re.search(r"\w{2}", above) or said.options.named(above) is not None:
        return None
    if said.lettered and len(letters := whole_letters(line, said.count, False) or ()) == 1:
        label = _ITEM_LETTER.match(above)
        return None if label and position(label[1], said.count) + 1 == letters[0] else letters
    if said.by_text and line[:1].isalnum() and above.endswith((".", "!", ":")) and not _ITEM.match(above):
        return _whole(Response(line, line, said.options, said.type))
    return None


_ITEM_LETTER = re.compile(r"\W{0,6}(?:[Oo]ption\s+)?\W?([A-Z])(?![^\W_])")
_ITEM = re.compile(r"\W*(?:\d{1,2}|[A-Za-z])[.):]\s|\s*[-•–]\s")


def _ticked(said: Response) -> Found:
    return ticked(said.text, said.count, said.multiple) if said.lettered else None


def _verdicts(said: Response) -> Found:
    if not said.lettered or any(
        words[:1] in (("right",), ("true",), ("present",), ("absent",), ("correct",), ("no",))
        for words in said.options.words
    ):
        return None
    return verdicts(said.text, said.count, said.multiple)[0]


_LEAD = re.compile(r"[\W_]{0,6}(?:(?:options?|choice|answer)\s+)?[\W_]{0,4}", re.IGNORECASE)
_LEAD_ENDS = re.compile(
    r"[\"')\]}>]*(?:\s*[.:)\]\-–—,;]|\s*\n|\s*$|\s+(?:because|since|due to|given|as)\b)", re.IGNORECASE
)
_ASSIGNED = re.compile(r"^\W*[A-Za-z][.:)=]\s*\(?[A-Z]\)?[^\w\n]*$", re.MULTILINE)
"""A line that gives a letter a letter ("b. C")."""
_ALL_OR_NONE = re.compile(
    r"\W{0,4}(?:(?:none|all|neither|both) of (?:the (?:above|options|choices|listed)\b|(?:these|those"
    r"|them)\W*(?:$|\n))|none\W*(?:$|\n))"
)


def _leading(said: Response) -> Found:
    """A response whose first words are an option: its letter, its text, or both ("B: a mass", "D. None of the above. The image ...")."""
    mention = said.mentions[0] if said.mentions else None
    lead = _LEAD.match(said.text)
    if mention is None or lead is None or mention.start > lead.end():
        return None
    if not mention.letter and (said.multiple or not _leads_by_text(said, mention)):
        return None
    if (
        mention.letter
        and not mention.text
        and _LEAD_ENDS.match(said.text, mention.end) is None
        and not mention.bracketed
    ):
        return None
    if (
        len(_ASSIGNED.findall(said.text[:600])) > 1
        or denied_after(said, mention.end)
        or _goes_on_listing(said, mention)
    ):
        return None
    if mention.letter and not mention.text and _ALL_OR_NONE.match(said.lowered, mention.end):
        return ()
    if said.options.yes_no and -1 in mention.options:
        return None
    if mention.crossed or mention.either or (len(mention.options) > 1 and not said.multiple):
        return ()
    if mention.options == (-1,) and asserted(said):
        return None
    if mention.letter and not mention.text and (other := _names_another(said, mention)) is not None:
        return other
    if said.multiple:
        return tuple(dict.fromkeys(place for each in _listed(said) for place in each.options))
    return mention.options


def _names_another(said: Response, mention: Mention) -> Found:
    """() where a few words after the letter are all those of another option ("B: right ventricle")."""
    rest = said.text[mention.end :].strip(" .:)-*")
    if not 0 < len(rest) <= 60 or not said.by_text:
        return None
    found = by_words(Response(rest, rest, said.options, said.type))
    return () if found and found != mention.options else None


def _leads_by_text(said: Response, mention: Mention) -> bool:
    """Whether an option's text is a sentence or line of its own at the start of a response that asserts no other."""
    end = re.compile(
        r"[\"')\]]*(?:\s*\([^()\n]{1,80}\))?(?:\.(?=\s|$)|\s*\n|\s*$|!|,? (?:because|since|not|rather than|given)\b)"
    ).match(said.text, mention.end)
    if end is None or len(mention.options) > 1:
        return False
    others = [each for each in said.mentions[1:] if each.options != mention.options and each.text]
    return not any(said.begins_line(each) for each in others)


def _listed(said: Response) -> list[Mention]:
    """The mentions that begin a response and follow one another, each with its letter."""
    found = [said.mentions[0]]
    for mention in said.mentions[1:]:
        if not mention.letter or not said.begins_line(mention):
            break
        found.append(mention)
    return found


def _goes_on_listing(said: Response, mention: Mention) -> bool:
    """Whether what begins a response is only the first of a list of options, each with its letter."""
    labels = [each for each in said.mentions if each.letter and (each.text or said.begins_line(each))]
    if said.multiple:
        return len({place for each in labels for place in each.options}) == said.count > 1
    alone = re.match(r"[^\w\n]{0,6}(?:[Oo]ption )?\W{0,3}[A-Z]\W{0,4}\n", said.text) is not None
    named = {each.options for each in labels}
    return not alone and (
        len(named) == said.count > 1 or len({each.options for each in labels if not denied(said, each)}) > 1
    )


def _leading_word(said: Response) -> Found:
    return _word(said, yes_no.leading)


def _word(said: Response, find: Callable[[str], str | None]) -> Found:
    word = find(said.text) if said.options.yes_no else None
    if word is None:
        return None
    place = said.options.yes_no.index(word) if word else -1
    letters = {each for mention in said.mentions for each in mention.options if each >= 0}
    crossed = (bool(letters) and place not in letters) or any(mention.crossed for mention in said.mentions)
    return () if place < 0 or crossed else (place,)


def _alone(said: Response) -> Found:
    return _word(said, yes_no.alone)


def _denies(said: Response) -> Found:
    return _word(said, yes_no.denies)


def _affirms(said: Response) -> Found:
    return _word(said, yes_no.affirms)


def _labelled(said: Response) -> Found:
    """The one option that is named with letter and text together and not denied."""
    if not said.lettered or not said.by_text:
        return None
    labelled = [each for each in said.mentions if each.letter and each.text]
    if not labelled or any(each.crossed for each in labelled):
        return None
    listed = said.listed[1]
    meant: dict[int, bool] = {}
    gone: set[int] = set()
    for each in labelled:
        verdict = (
            _CLOSES_ITEM.search(said.lowered[each.end : said.line_end(each.end)]) if said.begins_line(each) else None
        )
        if each.start < listed or in_condition(said, each):
            continue
        if verdict["wrong"] if verdict else denied(said, each):
            gone.update(each.options)
        else:
            meant.update(dict.fromkeys(each.options, verdict is not None))
    alive = [place for place in meant if place not in gone]
    called = [place for place in alive if meant[place]]
    alive = called if called and len(meant) + len(gone) > len(called) else alive
    return tuple(alive) if len(alive) == 1 or (said.multiple and 0 < len(alive) < said.count) else None


_CLOSES_ITEM = re.compile(
    r"[.;:,–—-]\s*\W*(?:(?:so |thus |therefore )?(?:this|it) is (?:the )?)?(?:(?P<wrong>(?:very |less "
    r"|highly )?unlikely|incorrect|wrong"
    r"|not (?:correct|likely|consistent|supported)|ruled out|excluded)|correct|most (?:likely|consistent)"
    r"|best (?:fit|match|answer))\W*$"
)
"""A verdict that ends the line of an option ("D. Lymphoma: homogeneous enhancement. Most consistent.")."""


def _only_lists(said: Response) -> bool:
    """Whether the response names options only in a list of all of them, and says nothing more about any."""
    if said.options.yes_no and len(set(_LABELLED_WORD.findall(said.lowered))) == 2:
        return True
    start, end = said.listed
    if start < 0 or _MARKS.search(said.text) or denied_before(said, said.named[0].start):
        return False
    outside = any(mention.start < start or mention.start >= end for mention in said.named)
    return not outside and not re.search(r"\w{3}", said.lowered[end:].replace("answer", ""))


_LABELLED_WORD = re.compile(r"(?<![^\W_])[a-z]\s?[).:]\s*(yes|no|true|false)\b")
_MARKS = re.compile(r"[✓✔✅✗❌✘×☐☑☒\[]")


def _declining_option(said: Response) -> Found:
    """The option that itself declines ("cannot be determined", "I do not know"), where the response does so and names no other."""
    place = _declining_place(said.options)
    if place is None or not (declines(said.lowered) or cannot_know(said.lowered)):
        return None
    if any(
        place not in mention.options and said.options.numeric.isdisjoint(mention.options)
        for mention in said.mentions
        if mention.text
    ):
        return None
    own = " ".join(said.options.plain[place].lower().split())
    if cannot_know(own) and cannot_know(said.lowered):
        return (place,)
    wanted = {word for word in said.options.words[place] if len(word) > 2}
    return (place,) if wanted and wanted <= set(said.words.words) else None


@lru_cache(maxsize=16384)
def _declining_place(texts: OptionTexts) -> int | None:
    """The one option that declines to answer."""
    options = [text.lower() if len(words) > 1 else "" for text, words in zip(texts.plain, texts.words, strict=True)]
    declining = [place for place, option in enumerate(options) if option and (declines(option) or cannot_know(option))]
    return declining[0] if len(declining) == 1 else None


def _declines(said: Response) -> Found:
    return () if declines(said.lowered) else None


def _undecided(said: Response) -> Found:
    return () if said.options.yes_no and undecided(said.lowered) else None


_NONE_FITS = re.compile(
    r"\bnone of (?:the )?(?:\w+ ){0,2}?(?:options|choices|answers)\b|\bnot (?:listed"
    r"|among)\b[^.\n]{0,20}\b(?:options|choices)\b"
)


def _fits_none(said: Response) -> Found:
    """A response that calls none of the options right, where no option says so."""
    if said.options.yes_no or ("none", "of", "the", "above") in said.options.names:
        return None
    return () if _NONE_FITS.search(said.lowered[-600:]) else None


def _letter(said: Response) -> Found:
    """A letter in brackets or after "option" that is not denied, or a capital by itself in a short response."""
    if not said.lettered or said.options.yes_no:
        return None
    if any(each.crossed for each in said.mentions):
        return ()
    alive: dict[int, None] = {}
    gone: set[int] = set()
    either = False
    letters = [each for each in said.mentions if each.letter]
    if len(letters) > 12:
        return None
    short = len(said.text) <= 300 and not _GEOMETRY.search(said.text)
    for mention in letters:
        if not mention.bracketed and (
            _SAYS_OF_IT.match(said.lowered, mention.end) or _IN_RANGE.search(said.before(mention.start))
        ):
            continue  # "D is tempting", "from A to D"
        named = mention.bracketed or AFTER_OPTION.search(said.lowered, max(0, mention.start - 12), mention.start)
        if not named and not (short and said.text[mention.start : mention.start + 1].isupper()):
            continue
        if supposed(said, mention.start, mention.end):
            continue
        if denied(said, mention):
            gone.update(mention.options)
        else:
            either |= mention.either or (len(mention.options) > 1 and not said.multiple)
            alive.update(dict.fromkeys(mention.options))
    left = tuple(place for place in alive if place not in gone and place >= 0)
    others = {place for each in said.mentions if each.text for place in each.options} - set(left)
    if either or not left or (others and not said.multiple):
        return None
    return left if len(left) == 1 or (said.multiple and len(left) < said.count) else None


_IN_RANGE = re.compile(r"\b(?:from|to|through)\s+\W?$")
_SAYS_OF_IT = re.compile(
    r"\s+(?:is|was|would|might|may|can|could|looks?|seems?|here)\b(?! (?:my|(?:the )?(?:most|best|only|right"
    r"|correct|likely)|more|clearly)\b)"
)
_GEOMETRY = re.compile(
    r"\b(?:angles?|triangles?|points?|segments?|vert(?:ex|ices)|sides?|arcs?)\s+[A-Z]{1,3}\b"
    r"|\bdistance (?:between|from)\b|∠|△"
)
"""Where capitals are points of a figure."""


def _asserted(said: Response) -> Found:
    if not said.by_text or said.options.yes_no or _ASKS_BACK.search(said.lowered, max(0, len(said.text) - 200)):
        return None
    listed = said.listed[1]
    if listed:
        rest = Response(said.text[listed:], said.raw, said.options, said.type)
        return asserted(rest)
    return asserted(said)


_ASKS_BACK = re.compile(r"(?:^|[.!\n])\s*which (?:of|one|option)\b[^.!?\n]*\?\W*$")


def _by_words(said: Response) -> Found:
    return by_words(said) if said.by_text and not said.multiple and not said.options.yes_no else None


RULES: tuple[Rule, ...] = (
    Rule("whole response", "explicit", _whole, "the response is nothing but one option, perhaps after 'Answer:'", "(B)"),
    Rule("statement", "explicit", _statement, "the last sentence that says which option is the answer", "A is tempting. The answer is B."),
    Rule("last line", "explicit", _last_line, "a last line that is nothing but one option", "It lies in the pelvis.\nB"),
    Rule("ticked box", "explicit", _ticked, "one box is ticked, another is not", "[ ] A [x] B"),
    Rule("verdict on each option", "explicit", _verdicts, "one option is called right, another wrong", "A: wrong. B: correct."),
    Rule("leading option", "explicit", _leading, "the response begins with an option", "B. The edge is sharp there."),
    Rule("leading yes or no", "explicit", _leading_word, "the response begins with yes or no", "No, the lung is clear."),
    Rule("option and letter", "implied", _labelled, "one option is named by letter and text", "It shows (B) rib fracture in front."),
    Rule("option that declines", "explicit", _declining_option, "the option 'I do not know', said in its words", "I do not know that."),
    Rule("refusal", "declining", _declines, "the response declines to answer", "I cannot interpret medical images."),
    Rule("undecided", "declining", _undecided, "it does not know whether yes or no", "It is unclear."),
    Rule("yes or no by itself", "implied", _alone, "the word between commas or stops", "As I see it, yes, a small one."),
    Rule("denial", "implied", _denies, "the response begins with a denial", "There is no nodule."),
    Rule("affirmation", "implied", _affirms, "it begins with 'there is'", "There is a nodule."),
    Rule("no option fits", "none", _fits_none, "none of the options is called right", "None of the options match."),
    Rule("letter", "implied", _letter, "a letter in brackets or after 'option', not denied", "It looks like option B to me"),
    Rule("option text", "implied", _asserted, "an option's text, said to be there", "The image shows a rib fracture."),
    Rule("words of one option", "implied", _by_words, "words that only one option has, in a short response", "Fracture of a rib"),
)  # fmt: skip
"""Every rule, in the order of the promise. `name` is stored in `answers.parquet` (column `rule`)."""
EXPLICIT = tuple(rule for rule in RULES if rule.stage == "explicit" or rule.name == "refusal")
"""What may be read of a response that was cut off: an explicit answer, or that it declines."""
STATED = tuple(rule for rule in RULES if rule.name in ("statement", "last line", "verdict on each option"))
"""What comes before a marked answer that holds no option."""


def _read_lone(said: Response, rules: Sequence[Rule]) -> Reading:
    """Options that are themselves letters (blood group O, class I): a letter may be the option's place or its text. Where these are two
    options, the letter that a prompt asks for ("B", "Answer: B") is the place; otherwise it is unclear which is meant."""
    texts = said.options
    label = _LONE_LABEL.fullmatch(said.text)
    if label is not None and (place := texts.lone.get(label[2].lower())) is not None:
        return _decide((place,) if LETTERS.find(label[1].upper()) == place else (), said.multiple, "whole response")
    if len({label[1] for label in _LETTER_LIST.finditer(said.text)}) == said.count > 1:
        return _nothing("every option listed")
    by_place = _ANSWERS_A_LETTER.search(said.text) is not None
    alphabet = Response(said.text, said.raw, _ALPHABET, said.type)
    alphabet.by_text = True
    for rule in rules:
        if rule.name in ("option and letter", "words of one option"):
            continue
        asked = said if rule.name == "option text" else alphabet
        if (found := rule.find(asked)) is None:
            continue
        if rule.stage == "declining":
            return Reading((), "refused", rule.name)
        meant: list[int] = []
        for place in found:
            named = texts.lone.get(LETTERS[place].lower(), place)
            if rule.name == "option text" or (by_place and place < said.count):
                named = place
            elif place < said.count and named != place:
                return _nothing("more than one option")
            meant.append(named if named < said.count else -1)
        return _decide(tuple(meant), said.multiple, rule.name)
    return _nothing("no option named")


_LONE_LABEL = re.compile(r"\W*(?:(?:the )?answer(?: is)?\W+)?(?:option )?([A-Za-z])\W{1,4}([A-Za-z])\W*", re.IGNORECASE)
_LETTER_LIST = re.compile(r"(?<![^\W_])\(?\s?([A-Za-z])\s?[).:]\s*([A-Z]{1,3})(?![^\W_])")
_ANSWERS_A_LETTER = re.compile(r"(?:^|\banswer\s*:|\banswer is(?=\s*\())\W*[A-Z]\W*$", re.IGNORECASE)
_ALPHABET = option_texts(("",) * len(LETTERS))


def official(choice: tuple[int, ...], rule: str) -> Reading:
    """The reading of a paper's own reader: answered where it found an option, else irrelevant."""
    return Reading(choice, "answered" if choice else "irrelevant", rule)
