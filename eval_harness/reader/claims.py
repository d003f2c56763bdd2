"""Find what a response claims of its options, by a closed grammar: clauses that name an option as the answer, or as what is seen.

A mention counts where the words before it, from the beginning of its clause, and the words after it are of a form of `claim_forms.py`.
Whatever else a sentence says of an option (next to something, suspected by somebody, to be excluded) has none of these forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from eval_harness.reader import claim_forms as forms
from eval_harness.reader.letters import position
from eval_harness.reader.mentions import Mention, PlainResponse
from eval_harness.reader.options import COMMON, EVERYDAY, words_of

Kind = Literal["answer statement", "statement", "verdict", "leading option", "last line", "option seen"]


@dataclass(frozen=True, slots=True)
class OptionClaim:
    """Options claimed at text[place]; () where it is unclear which of several. `kind` is the rule that finds it."""

    kind: Kind
    place: int
    options: tuple[int, ...]


def claims(said: PlainResponse) -> Iterator[OptionClaim]:
    """Every claim in the order of the text."""
    start, stop = said.listed()
    items = _items(said)
    inline = items if items and "\n" not in said.text[min(items) : max(items)].rstrip() else set()
    for at, mention in enumerate(said.mentions):
        if start <= mention.start < stop and not forms.TICK.search(said.before(mention.start)):
            continue
        if said.options.lone and mention.crossed and not forms.ANSWER.search(said.lead(mention.start)):
            continue  # an option that is itself a letter: the figure's, or the place?
        before, listed = said.lead(mention.start), mention.start in items
        kind = _kind(said, at, before, items)
        if kind == "answer statement" and listed:
            kind = None if forms.opens_list(before) or mention.start in inline else kind
        if kind is not None:
            if kind == "last line" and not before.rstrip(forms.ITEM).endswith(":"):
                before = said.before(mention.start)
            if kind == "last line" and _denies(before):
                continue
            supposed = forms.HYPOTHETICAL.search(before, _turn(before)) and not forms.IF_WILL.match(before)
            if said.is_asked(mention) or supposed or _is_example(said, mention):
                continue
            unclear = (mention.crossed and not said.options.lone) or -2 in mention.options or mention.either
            unclear |= (len(mention.options) > 1 or _and_another(said, at)) and not said.multiple
            yield OptionClaim(kind, mention.start, () if unclear else mention.options)


def _denies(before: str) -> bool:
    """True if the last clause before a line that is an option denies what follows ("What can be excluded:")."""
    return forms.DENIES.search(re.split(r"[,;]|\bbut\b", before)[-1]) is not None


_LABELLED_LINE = re.compile(r"(?:^|\n)\W*(?:option )?([A-Z])[).:]+\s*([^\n]+)", re.IGNORECASE)


def labelled_line(said: PlainResponse) -> Iterator[OptionClaim]:
    """The option that a line holds with its letter and exactly its text, where no line begins with another letter."""
    lines = list(_LABELLED_LINE.finditer(said.text)) if said.lettered and not said.multiple else []
    letters = {line[1].upper() for line in lines}
    place = position(letters.pop(), said.count) if len(letters) == 1 else -1
    for line in lines:
        before = said.lead(line.start(1))
        exact = place >= 0 and words_of(line[2]).words == said.options.words[place]
        if exact and not _denies(before) and not forms.HYPOTHETICAL.search(before, _turn(before)):
            yield OptionClaim("statement", line.start(1), (place,))


def _is_example(said: PlainResponse, mention: Mention) -> bool:
    """True for the prompt's own words ("answer with the option, e.g., ... A)")."""
    return said.lowered.rfind("e.g.", max(0, mention.start - 12), mention.start) >= 0


def _and_another(said: PlainResponse, at: int) -> bool:
    """True if the sentence goes on with another option and its letter ("(A) 3 mm for the left and (B) 5 mm for the right")."""
    mention, following = said.mentions[at], said.mentions[at + 1] if at + 1 < len(said.mentions) else None
    if following is None or not following.bracketed or not following.text or following.options == mention.options:
        return False
    return forms.AND.search(said.lowered, mention.end, following.start) is not None and (
        following.start < said.sentence(max(mention.end - 1, 0))[1]
    )


def _items(said: PlainResponse) -> set[int]:
    """Where the items stand of a list of options, by their letters: such a mention says nothing by its place."""
    lines = [
        mention
        for mention in said.named
        if mention.letter
        and said.begins_line(mention)
        and (mention.text or not forms.GOES_ON.match(said.text, mention.end))
    ]
    named = {mention.options for mention in lines}
    if said.multiple:
        return {mention.start for mention in lines} if len(named) == said.count else set()
    labels = [each for each in said.named if each.letter and (each.text or forms.IS_LABEL.match(said.text, each.end))]
    in_order = [each.options for each in labels[: said.count]] == [(place,) for place in range(said.count)]
    if in_order:
        last = labels[said.count - 1]
        stop = last.end if last.text else said.line_end(last.end)
        return {mention.start for mention in said.mentions if labels[0].start <= mention.start < stop}
    return {mention.start for mention in lines} if len(named) > 1 else set()


class _Lead:
    """The words before an option."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def clauses(self) -> list[int]:
        return [clause.end() for clause in forms.CLAUSE.finditer(self.text)]

    def has(self, form: re.Pattern[str]) -> bool:
        """True if a clause has this form from its beginning to the option."""
        return any(form.match(self.text, start) for start in self.clauses)


def _kind(said: PlainResponse, at: int, before: str, items: set[int]) -> Kind | None:
    mention, lead = said.mentions[at], _Lead(before)
    end = _noun_end(said, mention)
    tail = said.lowered[end : end + 160]
    if tail[:1] == "?" and any(option.endswith("?") for option in said.options.plain):
        tail = "." + tail[1:]
    if _is_number_of_item(said, mention, tail):
        return None
    labelled = mention.letter and mention.text
    undone = (mention.letter or not said.options.yes_no) and forms.UNDONE.match(tail) is not None
    if (forms.TICK.search(before) and not undone) or (
        (forms.VERDICT.match(tail) or _is_compared(said, at, end)) and (lead.has(forms.NAMES) or lead.has(forms.STATES))
    ):
        return "verdict"
    if forms.UNTICKED.search(before):
        return None
    closed = _closed(said, mention, tail)
    labelled_whole = mention.bracketed and mention.text and not mention.crossed and not forms.OR.match(tail)
    if (closed or labelled_whole) and not forms.CALLED_WRONG.match(tail) and not _agrees(said, mention, before):
        if lead.has(forms.ANSWERS):
            return "answer statement"
        if mention.start not in items and lead.has(forms.STATES):
            return "statement"
    if undone or mention.start in items:
        return None
    if (
        closed
        and mention.letter
        and (lead.has(forms.SEEN if mention.text else forms.IS) or forms.POINTS_TO_OPTION.match(before))
    ):
        return "statement"
    bracketed = mention.bracketed and mention.letter
    if (
        (labelled or bracketed)
        and not mention.crossed
        and closed
        and said.is_only_label(mention)
        and forms.IS_LABELLED.match(before)
    ):
        return "statement"
    if closed and (forms.NOT_BUT.search(before) or (labelled and said.multiple and lead.has(forms.NAMES))):
        return "statement"
    first = forms.ALONE.fullmatch(said.lowered, 0, mention.start) is not None
    none = (
        mention.text and said.options.none in mention.options and lead.has(forms.NAMES) and forms.NONE_HOLDS.match(tail)
    )
    if none and (first or not forms.FIELD.search(before)):
        return "leading option" if first else "statement"
    first = first or (
        forms.CLOSES.match(tail) is not None and forms.WITHIN.fullmatch(said.lowered, 0, mention.start) is not None
    )
    if first and closed and _leads(said, at, tail):
        return "statement" if said.text.startswith("A:") else "leading option"  # "A:" may also mean "Answer:"
    ends = (forms.ENDS_LINE if mention.letter else forms.CLOSES).match(tail)
    if not first and ends and forms.ALONE.fullmatch(said.before(mention.start)) and not _in_list(said, at, bool(items)):
        return "last line"
    if not said.lettered and closed and lead.has(forms.NAMES):
        return "statement"
    own = mention.text and (said.multiple or not mention.letter)
    if own and _seen(said, mention, lead, tail, closed) and _stands_alone(said, at):
        return "option seen"
    return None


def _is_compared(said: PlainResponse, at: int, end: int) -> bool:
    """True if an option is said to be more than another ("the kidney is larger than the spleen"), or the most."""
    compared = forms.COMPARED.match(said.lowered, end)
    if compared is None or not compared["than"]:
        return compared is not None
    following = said.mentions[at + 1 : at + 2]
    return (
        bool(following)
        and following[0].start - compared.end() < 20
        and following[0].options != said.mentions[at].options
    )


def _is_number_of_item(said: PlainResponse, mention: Mention, tail: str) -> bool:
    """True if a number only counts the items of a list ("2. Then I compare")."""
    numeric = mention.text and not mention.letter and not said.options.numeric.isdisjoint(mention.options)
    if not numeric or re.match(r"[.)]\s+\w", tail) is None or not said.begins_line(mention):
        return False
    return said.lowered[mention.start].isdigit() and len(forms.ITEM_NUMBER.findall(said.text)) > 1


def _turn(before: str) -> int:
    """Where a sentence turns to what it means ("at first I thought B, but ...")."""
    return max((turn.end() for turn in forms.BUT.finditer(before)), default=0)


def _closed(said: PlainResponse, mention: Mention, tail: str) -> bool:
    """True if what a frame names ends here, and does not go on ("A or B", "A-lines")."""
    word = said.lowered[mention.start : mention.end]
    if (said.options.yes_no and not mention.letter and " " not in word) or word in ("yes", "no"):
        return forms.ENDS_WORD.match(tail) is not None
    if mention.letter and mention.text and forms.NEXT_SENTENCE.match(said.text, mention.start):
        return True
    if mention.bracketed and not mention.text and said.text[mention.end - 1] == ")":
        return forms.OR.match(tail) is None
    if mention.bracketed and forms.NO_STOP.match(said.text, mention.end):
        return True
    ends = forms.ENDS_LETTER if mention.letter and not mention.text else forms.ENDS
    return ends.match(tail) is not None


def _agrees(said: PlainResponse, mention: Mention, before: str) -> bool:
    """ "That is right", "it was left", where right and left are options."""
    ways = {"right": ("that is ", "that is quite ", "you are "), "left": ("was ", "are ", "were ", "been ")}
    return before.endswith(ways.get(said.lowered[mention.start : mention.end], "?"))


def _noun_end(said: PlainResponse, mention: Mention) -> int:
    """Where a mention ends with the generic noun or the thing counted after it."""
    if said.options.are_sides and mention.text:
        noun = forms.OF_SIDE.match(said.lowered, mention.end)
        return noun.end() if noun else mention.end
    if mention.text and (noun := forms.KIND_OF.match(said.lowered, mention.end)) is not None:
        return noun.end()
    if mention.text and not said.options.numeric.isdisjoint(mention.options):
        counted = (forms.UNIT_AFTER if mention.letter else forms.MEASURE).match(said.lowered, mention.end)
        return counted.end() if counted else mention.end
    return mention.end


def _leads(said: PlainResponse, at: int, tail: str) -> bool:
    """True if what begins a response is an answer: not the first of a list, an everyday word ("None of ..."), or part of a sentence."""
    mention = said.mentions[at]
    if mention.letter:
        if not mention.text and re.match(r"\.\s[a-z]", said.text[mention.end :]):
            return False  # "E. coli"
        # A dash between letter and text is no minus sign ("C - 2").
        beside = words_of(re.sub(r"^\W*\s[-–]\s", "", said.text[mention.end : said.line_end(mention.end)])).words
        if not mention.text and said.options.begin_with(beside, mention.options):
            return False  # "B: right ventricle", where this is how A begins
        following = said.mentions[at + 1] if at + 1 < len(said.mentions) else None
        if said.multiple or following is None or not (following.letter and following.text and mention.text):
            return True
        return (
            following.options == mention.options
            or re.search(r"\w{2}", said.text[mention.end : following.start]) is not None
        )
    if said.options.yes_no:
        return True
    if said.lowered[mention.start : mention.end] in COMMON | EVERYDAY:
        return re.match(r"\W*(?:$|\n|[.!])", tail) is not None
    return forms.LEADS.match(tail) is not None and _stands_alone(said, at)


def _stands_alone(said: PlainResponse, at: int) -> bool:
    """True if the sentence names no other option but as a contrast or a neighbour ("a cyst rather than an abscess")."""
    mention = said.mentions[at]
    start, stop = said.sentence(max(mention.end - 1, 0))
    own = {word for place in mention.options for word in said.options.words[place]}
    adjectives = set((forms.ADJECTIVES.search(said.before(mention.start)) or [""])[0].split()) - own
    if any(not adjectives.isdisjoint(words) for words in said.options.words):
        return False  # "a calcified nodule", where the options are a nodule and a calcified mass
    contrasted = forms.CONTRAST.search(said.lowered, mention.end, stop)
    for other in said.mentions[at + 1 :]:
        if other.start >= stop:
            break
        contrast = contrasted is not None and contrasted.end() <= other.start
        if other.options != mention.options and (not contrast or _Lead(said.lead(other.start)).has(forms.SEEN)):
            return False
    last = said.mentions[at - 1] if at else None
    if last is None or last.start < start or last.options == mention.options:
        return True
    if said.options.clauses.issuperset(last.options):
        return False
    joined = re.search(
        r"\b(?:and|while|whereas|or)\b|\b(?:is|are|has)\b[^,;]*[,;]", said.lowered[last.end : mention.start]
    )
    return joined is None and not _Lead(said.lead(last.start)).has(forms.SEEN)


def _in_list(said: PlainResponse, at: int, listing: bool) -> bool:
    """True if a line that is nothing but an option goes on a list, whose item of another option stands on the line above or below."""
    mention = said.mentions[at]
    if said.multiple:
        return listing
    if forms.opens_list(said.lowered[: mention.start]):
        return True
    for first in (at - 1, at):
        if 0 <= first < len(said.mentions) - 1:
            one, other = said.mentions[first], said.mentions[first + 1]
            in_order = one.letter and other.letter and one.options < other.options
            if in_order and said.begins_line(one) and said.text.count("\n", one.end, other.start) == 1:
                return True
    return False


def _seen(said: PlainResponse, mention: Mention, lead: _Lead, tail: str, closed: bool) -> bool:
    if _agrees(said, mention, lead.text):
        return False
    only = said.is_only_text(mention)
    everyday = not (said.options.are_sides and only) and said.lowered[mention.start : mention.end] in COMMON | EVERYDAY
    if everyday and not forms.OF_IMAGE.search(lead.text):
        return False
    if lead.has(forms.NAMES) and (
        forms.SEEN_AFTER.match(tail) or (closed and said.options.clauses.issuperset(mention.options))
    ):
        return True
    if not said.options.numeric.isdisjoint(mention.options) and lead.text.endswith(("= ", "=")):
        return closed and not re.search(r"\w", said.text[mention.end :])
    if not closed and not (only and _repeats_noun(tail, lead.text)):
        return False
    return lead.has(forms.SEEN) or bool(forms.IF_WILL.match(lead.text)) or (only and lead.has(forms.PREDICATE))


def _repeats_noun(tail: str, before: str) -> bool:
    """True if a sentence ends with a noun that its subject has ("the leaf with most veins is the hastate leaf")."""
    noun = re.match(r"[\"')]*\s+([a-z]{3,})[\"')]*\s*(?:$|[.,!;\n])", tail)
    return noun is not None and re.search(rf"\b{noun[1]}\b", before) is not None
