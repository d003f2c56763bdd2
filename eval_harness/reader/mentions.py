"""Find every mention of an option in a response: by letter, by text, or by both.

Letters are found in any notation. The article A, the pronoun I and letters within names are not
option letters. Options named in a row ("A, B and D") form one mention.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from dataset_builders.schema import LETTERS
from eval_harness.reader.options import OptionTexts, Tokens, tokenize
from eval_harness.reader.text import CJK_RANGES, lower_aligned

# --- letters ---

Positions = tuple[int, ...] | None
"""Positions of the options that letters name; () for several without a decision.

None if the text is not of this form.
"""

OPENING_MARKS, CLOSING_MARKS = r"[\"'(\[{<«「]{0,4}", r"[\"')\]}>»」]{0,4}"
_OPTION_LETTER = re.compile(
    rf"(?<![\w]['’-])(?<![∠△⊙])(?P<letter>[A-Z]|[a-z](?=[)\]}}]|[.:\"']?\s*(?:\n"
    rf"|$)))(?!['’]?[^\W_{CJK_RANGES}]|-[a-z]{{2}})(?P<close>{CLOSING_MARKS})"
)
_WORD_AFTER_ARTICLE = re.compile(
    r"[^\S\n]+(?!\w(?![\w-])|\d[\d.,: ]*(?:\s?%|\W*(?:$|\n))|(?:and|or|nor|is|are|was|because"
    r"|since|as|due|for"
    r"|based|given|not|rather"
    r"|with|which|but|in|on|only|unlike|vs|versus|through|thru|et|und|oder|ou|y|from|would|could"
    r"|seems?|looks?"
    r"|appears?|the|i|it|this"
    r"|that|instead|over|to|at|first|fits?|best|matches)\b)[A-Za-z0-9]",
    re.IGNORECASE,
)
"""A word that follows the article "A", rather than the option letter A."""
_TICKED_BOXES = ("[x]", "[X]")
LETTER_BOUNDARY = re.compile(
    rf"\s*(?:$|\n|[(.,;:!?)\]}}\"'<>|/&]|[-–—]\s|(?:and|n?or|et|und|oder|ou|y|o)\b|[{CJK_RANGES}])"
)


def letter_position(letter: str, option_count: int) -> int:
    """Return the option position of a letter, or -1 outside the options."""
    position = LETTERS.index(letter.upper())
    return position if position < option_count else -1


def find_letters(text: str, lowered: str, offsets: Iterable[int]) -> Iterator[re.Match[str]]:
    """Yield matches of single-letter words that may be option letters.

    Args:
        text: The normalized response.
        lowered: The same text in lower case.
        offsets: Offsets of the single-letter words.

    Yields:
        Matches with the groups `letter` and `close` (the brackets after it).
    """
    for match in filter(None, (_OPTION_LETTER.match(text, offset) for offset in offsets)):
        start, end = match.start(), match.end()
        # A letter between brackets or quotes is an option letter in any case and position.
        letter, closed = match["letter"], bool(match["close"])
        opened = start > 0 and text[start - 1] in "\"'([{<「"
        if letter.islower() and not (opened and closed) and not _BEGINS_LINE.search(lowered, max(0, start - 20), start):
            continue
        # The pronoun I counts only in brackets or before punctuation.
        if (
            letter == "I"
            and not (opened and closed)
            and (LETTER_BOUNDARY.match(text, end) is None or text[end : end + 1] == "'")
        ):
            continue
        is_article = letter == "A" and not closed and _is_article(text, lowered, start, end)
        if is_article or text[start - 1 : end] in _TICKED_BOXES:
            continue
        yield match


def _is_article(text: str, lowered: str, start: int, end: int) -> bool:
    """Return True if a capital A is the English article."""
    quoted = start > 0 and text[start - 1] in "\"'([{<「" and not text[end : end + 1].isspace()
    return (
        not quoted
        and _WORD_AFTER_ARTICLE.match(text, end) is not None
        and not AFTER_OPTION.search(lowered, max(0, start - 12), start)
    )


AFTER_OPTION = re.compile(r"\b(?:option|choice|answer|letter|opción|opção|opzione|antwort|alternativa|选项)s? ?$")
_BEGINS_LINE = re.compile(r"(?:^|\n|answer|option|choice|is|:)[\s\"'(\[:*]*$")
"""Before a lower-case letter that names an option ("answer: b")."""

_NOTHING_BUT_LETTERS = re.compile(
    rf"\W*(?:(?:options?|choices?|answers?|letters?|both"
    rf"|选项?)\s*:?\s*)?{OPENING_MARKS}[A-Za-z]{CLOSING_MARKS}"
    rf"(?:(?:\s*(?:,|/|&|\||\+|;|\n|\band\b|\bund\b|\bet\b|\by\b|和|与"
    rf"|及)\s*)+(?:options?\s+)?{OPENING_MARKS}[A-Za-z]{CLOSING_MARKS}"
    rf"|\s*[\"'(\[]+[A-Z]{CLOSING_MARKS})*[\W_]*(?:only\W*)?",
    re.IGNORECASE,
)
_LETTER_RUN = re.compile(r"[\s\"'(\[{:*]{0,20}([A-Z]{2,26}|[A-Z](?:[^\S\n]+[A-Z])+)(?![\w'-])")
_CROSS = re.compile(r"[✗❌✘×☐☑☒]|\[ ?\]")
_ONE_LETTER_CONJUNCTION = re.compile(r"(?<=\w[\s)\]]) *[eyou] (?=[A-Z(\[])")
_SINGLE_LETTER = re.compile(r"(?<![^\W_])[A-Za-z](?![^\W_])")


def parse_letters_only(text: str, option_count: int, multiple: bool) -> Positions:
    """Parse a text that consists only of letters: "B", "(b)", "B.", "option B", "A and C".

    Args:
        text: The text.
        option_count: Number of options.
        multiple: Whether several answers are allowed; then "ACD" is read, too.
    """
    # Crosses and empty boxes reject options, so the letters are not simply the answer.
    if len(text) > 200 or _CROSS.search(text):
        return None
    if (
        multiple
        and (run := _parse_letter_run(text, option_count))
        and not text.strip(" \n\"'()[]{}.,;:!").lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    ):
        return run
    if _NOTHING_BUT_LETTERS.fullmatch(text) is None:
        return None
    # dict.fromkeys keeps the order and drops repeated letters.
    return (
        tuple(
            dict.fromkeys(
                letter_position(match[0], option_count)
                for match in _SINGLE_LETTER.finditer(_ONE_LETTER_CONJUNCTION.sub(" ", text))
            )
        )
        or None
    )


def _parse_letter_run(text: str, option_count: int) -> Positions:
    """Parse letters written together in ascending order ("BCE", "B C E")."""
    run = _LETTER_RUN.match(text)
    if run is None:
        return None
    positions = [letter_position(letter, option_count) for letter in run[1] if letter.isalpha()]
    return tuple(positions) if positions == sorted(set(positions)) and positions[0] >= 0 else None


# --- mentions ---


class Mention(NamedTuple):
    """Options named at text[start:end].

    Attributes:
        options: Positions of the options; several if they are named in a row ("A, B and D"). -1 is
            a letter outside the options, -2 a text that two options share.
        start: Offset of the first character.
        end: Offset after the last character.
        letter: Whether they are named by letter.
        text: Whether they are named by text.
        crossed: The letter of one option labels the text of another, so the mention is ambiguous.
        either: The options are joined by "or".
        bracketed: The letter is in brackets or quotes.
    """

    options: tuple[int, ...]
    start: int
    end: int
    letter: bool
    text: bool
    crossed: bool = False
    either: bool = False
    bracketed: bool = False


# A full stop after "e.g.", "Fig." or a list number does not end a sentence.
_SENTENCE_END = re.compile(
    r"[.!?\n](?:(?<=\n)|(?<!\be\.g\.)"
    r"(?<!\bi\.e\.)(?<!\bvs\.)(?<!\b[Ff]ig\.)(?<!\bDr\.)(?<!\b\d\.)(?<!\b\d\d\.)(?<!\bapprox\.)"
    r"[.!?]*[\"')\]]*(?=\s|$))"
)
_LABEL_GAP = re.compile(r"[^\S\n]*[.:)\]=,–—-]{0,2}[^\S\n]?[\"'(]{0,2}(?:(?<![.,] )(?:the|an?)\s)?")
_LETTER_AFTER_TEXT = re.compile(r"[\"']?\s*[(\[](?:option |choice |answer )?\"?([a-z])\"?[)\]]")
_LIST_CONJUNCTION = re.compile(
    r"[\"')\]?]*[^\S\n]*(?:\([^()\n]{2,80}\))?[^\S\n]*(?:,|;(?=\s*\W?[a-z]\W)|/|&|\+)?[^\S\n]*"
    r"(?P<by>and/or|then|and|or(?: (?:maybe|possibly|perhaps))?|nor|vs\.?|versus|et|und|y|oder|ou"
    r"|或者?|还是|以及|和|与|及|、)?"
    r"[^\S\n]*(?:(?:both|either|the|an?|options?|choices?)[^\S\n]+)*[\"'(\[]*"
)
_YES_NO_CONJUNCTION = re.compile(r"\s*(?:/\s*)?(?P<by>and|or|nor)?\s*(?<=[/r d] )?|/")
"""Conjunction between "yes" and "no" when both are offered."""
_TWO_WORD_CHARACTERS = re.compile(r"\w{2}")
_ALTERNATIVE_CONJUNCTIONS = frozenset(
    ["or", "nor", "vs", "vs.", "versus", "oder", "ou", "and/or", "或", "或者", "还是"]
)

MAX_MENTIONS = 40
"""Maximum number of mentions analysed per response; a model in a loop produces more."""


class PlainResponse:
    """A normalized response with cached sentence boundaries, tokens and option mentions.

    Args:
        text: The response after `text.normalize_text`.
        options: The compiled options of the question.
        question_type: `single`, `multiple` or `yes_no`.
    """

    def __init__(self, text: str, options: OptionTexts, question_type: str) -> None:
        self.text, self.options, self.question_type = text, options, question_type
        self.multiple = question_type == "multiple"
        self.lettered = question_type != "yes_no"
        self.count, self.lowered = options.count, lower_aligned(text)

    @cached_property
    def words(self) -> Tokens:
        return tokenize(self.text)

    @cached_property
    def sentence_ends(self) -> list[int]:
        """Offsets at which sentences and lines end, ascending."""
        return [match.end() for match in _SENTENCE_END.finditer(self.text)]

    def sentence_span(self, offset: int) -> tuple[int, int]:
        """Return (start, end) of the sentence that contains text[offset].

        Args:
            offset: Character offset in the text.
        """
        index = bisect_right(self.sentence_ends, offset)
        start = self.sentence_ends[index - 1] if index else 0
        return start, self.sentence_ends[index] if index < len(self.sentence_ends) else len(self.text)

    def sentence_before(self, offset: int) -> str:
        """Return the lower-case part of the sentence before text[offset], up to 160 characters."""
        return self.lowered[max(self.sentence_span(offset)[0], offset - 160) : offset]

    def lead_before(self, offset: int) -> str:
        r"""Return `sentence_before`, extended to the line above for text at the start of a line.

        For example "The correct answer is:\n\nB".
        """
        start = self.sentence_span(offset)[0]
        if start and not _TWO_WORD_CHARACTERS.search(self.lowered, start, offset):
            start = self.sentence_span(start - 1)[0]
        return self.lowered[max(start, offset - 160) : offset]

    def line_end(self, offset: int) -> int:
        """Return the end of the line that contains text[offset], at most 600 characters later."""
        end = self.text.find("\n", offset, offset + 600)
        return end if end >= 0 else min(len(self.text), offset + 600)

    def is_question(self, mention: Mention) -> bool:
        """Return True if the mention's sentence is a question.

        A question mark that belongs to the text of an option does not count.
        """
        stop = self.sentence_span(max(mention.end - 1, mention.start))[1]
        if not self.lowered[max(mention.end, stop - 3) : stop].rstrip("\"') \n").endswith("?"):
            return False
        return self.lowered[mention.end : mention.end + 1] != "?" or not any(
            option.endswith("?") for option in self.options.plain
        )

    @cached_property
    def single_mentions(self) -> list[Mention]:
        """Mentions of single options in text order, capped at MAX_MENTIONS.

        If there are more, a quarter of the cap is kept from the start and the rest from the end,
        since conclusions come last.
        """
        mentions = _merge_letters_and_texts(self._letters() if self.lettered else [], self._texts(), self.lowered)
        if self.options.duplicate_texts:
            duplicates = (
                tokenize(self.text[mention.start : mention.end]).words if mention.options == (-2,) else ()
                for mention in mentions
            )
            positions = (self.options.duplicate_texts.get(words) for words in duplicates)
            mentions = [
                mention if position is None else mention._replace(options=(position,))
                for mention, position in zip(mentions, positions, strict=True)
            ]
        if len(mentions) <= MAX_MENTIONS:
            return mentions
        return mentions[: MAX_MENTIONS // 4] + mentions[-3 * MAX_MENTIONS // 4 :]

    @cached_property
    def mentions(self) -> tuple[Mention, ...]:
        """`single_mentions` with options in a row ("A, B and D") merged into one mention."""
        return _join_lists(
            self.single_mentions,
            self.lowered,
            _LIST_CONJUNCTION if self.lettered else _YES_NO_CONJUNCTION,
        )

    def is_only_named(self, mention: Mention, labelled: bool = False) -> bool:
        """Return True if no other option is named by text or by a bracketed letter.

        Args:
            mention: The mention.
            labelled: Ignore options that are named by text without their letter.
        """
        return {mention.options} == {
            candidate.options
            for candidate in self.single_mentions
            if (candidate.letter or not labelled) and (candidate.text or candidate.bracketed)
        }

    def begins_line(self, mention: Mention) -> bool:
        """Return True if the mention starts a line or a list item."""
        return _LIST_ITEM_LEAD.search(self.text, max(0, mention.start - 14), mention.start) is not None

    def option_list_span(self) -> tuple[int, int]:
        """Find a bare list of all options in order.

        Each option has its letter or its own line, and no words stand between them.

        Returns:
            (start, end) offsets of the list, or (-1, 0) if there is none.
        """
        option_count = self.count if self.lettered else 0
        for start in range(len(self.single_mentions) - option_count + 1 if option_count > 1 else 0):
            items = self.single_mentions[start : start + option_count]
            if any(item.options != (position,) for position, item in enumerate(items)):
                continue
            gaps = [self.text[previous.end : following.start] for previous, following in pairwise(items)]
            if all(item.letter or self.begins_line(item) for item in items[1:]) and not any(map(_prose_of_gap, gaps)):
                return items[0].start, items[-1].end
        return -1, 0

    def _letters(self) -> list[Mention]:
        """Return the mentions by letter, in text order."""
        mentions, letter_options = [], self.options.single_letter_options
        offsets = [self.words.start(index) for index, word in enumerate(self.words.words) if len(word) == 1]
        offsets = (
            offsets if len(offsets) <= 8 * MAX_MENTIONS else offsets[: 2 * MAX_MENTIONS] + offsets[-6 * MAX_MENTIONS :]
        )
        for match in find_letters(self.text, self.lowered, offsets):
            start = match.start()
            # Opening quotes and brackets belong to the mention.
            while start > 0 and self.text[start - 1] in "\"'([{<「":
                start -= 1
            position = letter_position(match["letter"], self.count)
            # The text of an option may itself be a letter (blood group O).
            option = letter_options.get(match["letter"].lower(), position)
            crossed = option != position and position >= 0
            options = (position if crossed else option,)
            mentions.append(
                Mention(
                    options,
                    start,
                    match.end(),
                    True,
                    False,
                    crossed,
                    bracketed=bool(match["close"]),
                )
            )
        lowercase = [mention for mention in mentions if not mention.bracketed and self.text[mention.end - 1].islower()]
        # Three or more lower-case letters are taken for the variables of a formula.
        return mentions if len(lowercase) < 3 else [mention for mention in mentions if mention not in lowercase]

    def _texts(self) -> list[Mention]:
        """Return the mentions by text, in text order."""
        tokens = self.words
        return [
            Mention(
                (-2 if span.option is None else span.option,),
                tokens.start(span.start),
                tokens.end(span.stop - 1),
                False,
                True,
            )
            for span in self.options.find_names(tokens, self.text)
        ]


_LIST_ITEM_LEAD = re.compile(r"(?:(?:^|\n)\W*(?:[Oo]ption\s+)?(?:\d{1,2}\W{1,3})?|\(\s?[A-Za-z]\s?\)\s*)$")
_NOT_PROSE = re.compile(r"[^\w✓✔✅✗❌✘×☐☑☒]|\b(?:and|or|option|[A-Za-z]|\d{1,2})\b", re.IGNORECASE)


def _prose_of_gap(gap: str) -> str:
    """Return the prose between two list items: what is neither a marker nor a conjunction."""
    return _NOT_PROSE.sub("", gap)


def _merge_letters_and_texts(letters: list[Mention], texts: list[Mention], lowered: str) -> list[Mention]:
    """Merge letter mentions and text mentions in text order.

    A letter that labels a text becomes one mention with it.
    """
    letter_starts = [letter.start for letter in letters]
    covered: set[int] = set()  # indices of letters inside an option's text
    for index, text in enumerate(texts):
        inside = range(bisect_left(letter_starts, text.start), bisect_left(letter_starts, text.end))
        covered.update(index for index in inside if letters[index].end <= text.end + 1)
        final_letter = letters[inside[-1]] if inside else text
        if (
            final_letter.end >= text.end
            and final_letter.options != text.options
            and AFTER_OPTION.search(lowered, text.start, final_letter.start)
        ):
            texts[index] = text._replace(crossed=True)  # "option C" where "C" is the text of option E
    merged: list[Mention] = []
    text_at = 0
    # Both lists are sorted: advance through them together.
    for index, letter in enumerate(letters):
        if index in covered:
            continue
        while text_at < len(texts) and texts[text_at].start < letter.end:
            merged.append(texts[text_at])
            text_at += 1
        next_text = texts[text_at] if text_at < len(texts) else None
        if (
            merged
            and not merged[-1].letter
            and (label_match := _LETTER_AFTER_TEXT.match(lowered, merged[-1].end)) is not None
            and (letter.start <= label_match.start(1) <= letter.end)
        ):
            merged.append(_merge_label(letter, merged.pop(), label_match.end()))
        elif next_text is not None and _is_label_of(letter, next_text, lowered):
            # "B (cyst)": the closing bracket belongs to the mention.
            closed = "(" in lowered[letter.end : next_text.start] and lowered[next_text.end : next_text.end + 1] == ")"
            merged.append(_merge_label(letter, next_text, next_text.end + closed))
            text_at += 1
        else:
            merged.append(letter)
    return merged + texts[text_at:]


def _is_label_of(letter: Mention, text: Mention, lowered: str) -> bool:
    """Return True if a letter directly precedes an option's text as its label."""
    gap = _LABEL_GAP.match(lowered, letter.end)
    if gap is None or not letter.end < text.start <= gap.end():
        return False
    return letter.bracketed or bool(lowered[letter.end : text.start].strip()) or text.options in (letter.options, (-2,))


def _merge_label(letter: Mention, text: Mention, end: int) -> Mention:
    """Merge a letter and the text it labels; `crossed` if they belong to different options."""
    is_same_option = text.options in (letter.options, (-2,))
    options = letter.options if is_same_option else (*letter.options, *text.options)
    start = min(letter.start, text.start)
    return letter._replace(options=options, start=start, end=end, text=True, crossed=not is_same_option)


def _join_lists(mentions: list[Mention], lowered: str, conjunction: re.Pattern[str]) -> tuple[Mention, ...]:
    """Merge mentions in a row ("A, B and D", "oedema or effusion") into one."""
    joined: list[Mention] = []
    for mention in mentions:
        previous = joined[-1] if joined else None
        link = (
            conjunction.fullmatch(lowered, previous.end, mention.start)
            if previous and mention.start - previous.end < 110
            else None
        )
        if (
            previous is None
            or link is None
            or not lowered[previous.end : mention.start].strip(" \n\"'()[]")
            or not set(mention.options).isdisjoint(previous.options)
        ):
            joined.append(mention)
        else:
            either = previous.either or (link["by"] or "").split(" ")[0] in _ALTERNATIVE_CONJUNCTIONS
            joined[-1] = previous._replace(
                options=(*previous.options, *mention.options), end=mention.end, letter=previous.letter and mention.letter,
                text=previous.text and mention.text, crossed=previous.crossed or mention.crossed, either=either,
            )  # fmt: skip
    return tuple(joined)
