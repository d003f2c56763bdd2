"""Find the claims that a response makes about its options, with a closed grammar.

A claim is a clause that names an option as the answer, or as a finding that is seen. A mention of
an option counts as a claim only if the context before it (from the start of the clause) and the
context after it both match a pattern of `claim_forms.py`. Any other statement about an option (it
is next to something, somebody suspects it, it is to be excluded) matches no pattern and claims
nothing.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from eval_harness.reader import claim_forms as forms
from eval_harness.reader.mentions import Mention, PlainResponse, letter_position
from eval_harness.reader.options import COMMON_WORDS, DESCRIPTIVE_WORDS, tokenize

Kind = Literal["answer statement", "statement", "verdict", "leading option", "last line", "option seen"]


@dataclass(frozen=True, slots=True)
class OptionClaim:
    """A claim at text[offset].

    Attributes:
        kind: Name of the rule that found the claim.
        offset: Character offset of the mention in the normalized response.
        options: Positions of the options claimed; empty if it is unclear which one is meant.
    """

    kind: Kind
    offset: int
    options: tuple[int, ...]


def find_claims(response: PlainResponse) -> Iterator[OptionClaim]:
    """Yield every claim of a response, in text order.

    Args:
        response: The normalized response with its options.

    Yields:
        Claims; those in questions, hypotheticals and quoted examples are skipped.
    """
    list_start, list_stop = response.option_list_span()
    item_starts = _list_item_starts(response)
    inline_starts = (
        item_starts
        if item_starts and "\n" not in response.text[min(item_starts) : max(item_starts)].rstrip()
        else set()
    )
    for index, mention in enumerate(response.mentions):
        if list_start <= mention.start < list_stop and not forms.TICK_LEAD.search(
            response.sentence_before(mention.start)
        ):
            continue
        if (
            response.options.single_letter_options
            and mention.crossed
            and not forms.ANSWER_LEAD.search(response.lead_before(mention.start))
        ):
            continue  # the option text is itself a letter: it may name the option or its position
        lead, is_list_item = response.lead_before(mention.start), mention.start in item_starts
        kind = _classify_mention(response, index, lead, item_starts)
        if kind == "answer statement" and is_list_item:
            kind = None if forms.announces_list(lead) or mention.start in inline_starts else kind
        if kind is not None:
            if kind == "last line" and not lead.rstrip(forms.LIST_ITEM_CHARACTERS).endswith(":"):
                lead = response.sentence_before(mention.start)
            if kind == "last line" and _denies(lead):
                continue
            is_hypothetical = forms.HYPOTHETICAL.search(
                lead, _adversative_end(lead)
            ) and not forms.CONDITIONAL_LEAD.match(lead)
            if response.is_question(mention) or is_hypothetical or _is_example(response, mention):
                continue
            is_ambiguous = (
                (mention.crossed and not response.options.single_letter_options)
                or -2 in mention.options
                or mention.either
            )
            is_ambiguous |= (len(mention.options) > 1 or _and_another(response, index)) and not response.multiple
            yield OptionClaim(kind, mention.start, () if is_ambiguous else mention.options)


def _denies(lead: str) -> bool:
    """Return True if the last clause before an option on its own line denies it.

    For example "To be excluded:".
    """
    return forms.DENIAL_WORD.search(re.split(r"[,;]|\bbut\b", lead)[-1]) is not None


_LABELLED_LINE = re.compile(r"(?:^|\n)\W*(?:option )?([A-Z])[).:]+\s*([^\n]+)", re.IGNORECASE)


def find_labelled_line(response: PlainResponse) -> Iterator[OptionClaim]:
    """Yield the option that a line gives by its letter followed by exactly its text.

    Args:
        response: The normalized response with its options.

    Yields:
        One claim per such line; none if lines begin with different letters, or if the lead-in
        denies the option or is hypothetical.
    """
    lines = list(_LABELLED_LINE.finditer(response.text)) if response.lettered and not response.multiple else []
    letters = {line[1].upper() for line in lines}
    position = letter_position(letters.pop(), response.count) if len(letters) == 1 else -1
    for line in lines:
        lead = response.lead_before(line.start(1))
        is_exact = position >= 0 and tokenize(line[2]).words == response.options.words[position]
        if is_exact and not _denies(lead) and not forms.HYPOTHETICAL.search(lead, _adversative_end(lead)):
            yield OptionClaim("statement", line.start(1), (position,))


def _is_example(response: PlainResponse, mention: Mention) -> bool:
    """Return True if the mention repeats the prompt's example ("answer with a letter, e.g. A")."""
    return response.lowered.rfind("e.g.", max(0, mention.start - 12), mention.start) >= 0


def _and_another(response: PlainResponse, index: int) -> bool:
    """Return True if the same sentence adds another labelled option.

    For example "(A) 3 mm for the left and (B) 5 mm for the right".
    """
    mention, following = (
        response.mentions[index],
        response.mentions[index + 1] if index + 1 < len(response.mentions) else None,
    )
    if following is None or not following.bracketed or not following.text or following.options == mention.options:
        return False
    return forms.AND_LEAD.search(response.lowered, mention.end, following.start) is not None and (
        following.start < response.sentence_span(max(mention.end - 1, 0))[1]
    )


def _list_item_starts(response: PlainResponse) -> set[int]:
    """Return the start offsets of mentions that are items of a lettered option list.

    Being an item of a list does not make a mention a claim.
    """
    line_labels = [
        mention
        for mention in response.single_mentions
        if mention.letter
        and response.begins_line(mention)
        and (mention.text or not forms.SENTENCE_CONTINUES.match(response.text, mention.end))
    ]
    lettered_options = {mention.options for mention in line_labels}
    if response.multiple:
        return {mention.start for mention in line_labels} if len(lettered_options) == response.count else set()
    labels = [
        mention
        for mention in response.single_mentions
        if mention.letter and (mention.text or forms.LABEL_DELIMITER.match(response.text, mention.end))
    ]
    in_order = [mention.options for mention in labels[: response.count]] == [
        (position,) for position in range(response.count)
    ]
    if in_order:
        final_label = labels[response.count - 1]
        stop = final_label.end if final_label.text else response.line_end(final_label.end)
        return {mention.start for mention in response.mentions if labels[0].start <= mention.start < stop}
    return {mention.start for mention in line_labels} if len(lettered_options) > 1 else set()


class _Lead:
    """The text before a mention, with the offsets at which its clauses start."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def clauses(self) -> list[int]:
        return [clause.end() for clause in forms.CLAUSE_START.finditer(self.text)]

    def matches(self, form: re.Pattern[str]) -> bool:
        """Return True if the pattern matches from the start of some clause up to the option."""
        return any(form.match(self.text, start) for start in self.clauses)


def _classify_mention(response: PlainResponse, index: int, lead_text: str, item_starts: set[int]) -> Kind | None:
    """Return the kind of claim that a mention makes, or None if it makes none."""
    mention, lead = response.mentions[index], _Lead(lead_text)
    mention_end = _phrase_end(response, mention)
    tail = response.lowered[mention_end : mention_end + 160]
    # A question mark may belong to the option's own text: then it ends the phrase like a full stop.
    if tail[:1] == "?" and any(option.endswith("?") for option in response.options.plain):
        tail = "." + tail[1:]
    if _is_number_of_item(response, mention, tail):
        return None
    has_letter_and_text = mention.letter and mention.text
    is_rejected = (mention.letter or not response.options.yes_no) and forms.REJECTION_FOLLOWS.match(tail) is not None
    if (forms.TICK_LEAD.search(lead_text) and not is_rejected) or (
        (forms.VERDICT_FOLLOWS.match(tail) or _is_compared(response, index, mention_end))
        and (lead.matches(forms.BARE_LEAD) or lead.matches(forms.STATEMENT_LEAD))
    ):
        return "verdict"
    if forms.UNTICKED_LEAD.search(lead_text):
        return None
    # From the most explicit form to the weakest; the first one that matches names the claim.
    is_closed = _ends_after(response, mention, tail)
    is_bracketed_label = (
        mention.bracketed and mention.text and not mention.crossed and not forms.ALTERNATIVE_FOLLOWS.match(tail)
    )
    if (
        (is_closed or is_bracketed_label)
        and not forms.LABELLED_WRONG.match(tail)
        and not _is_agreement(response, mention, lead_text)
    ):
        if lead.matches(forms.ANSWER_STATEMENT_LEAD):
            return "answer statement"
        if mention.start not in item_starts and lead.matches(forms.STATEMENT_LEAD):
            return "statement"
    # For items of a list and rejected options, the weaker forms below do not count.
    if is_rejected or mention.start in item_starts:
        return None
    if (
        is_closed
        and mention.letter
        and (
            lead.matches(forms.SEEN_LEAD if mention.text else forms.COPULA_LEAD) or forms.POINTING_LEAD.match(lead_text)
        )
    ):
        return "statement"
    bracketed = mention.bracketed and mention.letter
    if (
        (has_letter_and_text or bracketed)
        and not mention.crossed
        and is_closed
        and response.is_only_named(mention, labelled=True)
        and forms.LABELLED_PREDICATE_LEAD.match(lead_text)
    ):
        return "statement"
    if is_closed and (
        forms.NOT_BUT_LEAD.search(lead_text)
        or (has_letter_and_text and response.multiple and lead.matches(forms.BARE_LEAD))
    ):
        return "statement"
    is_leading = forms.LONE_OPTION_LEAD.fullmatch(response.lowered, 0, mention.start) is not None
    # "None of the above" may start any clause, but not fill a report field ("Comparison: none").
    is_none_option = (
        mention.text
        and response.options.none_option in mention.options
        and lead.matches(forms.BARE_LEAD)
        and forms.NONE_OPTION_END.match(tail)
    )
    if is_none_option and (is_leading or not forms.REPORT_FIELD_LEAD.search(lead_text)):
        return "leading option" if is_leading else "statement"
    is_leading = is_leading or (
        forms.SENTENCE_END.match(tail) is not None
        and forms.LOCATION_LEAD.fullmatch(response.lowered, 0, mention.start) is not None
    )
    if is_leading and is_closed and _is_leading_answer(response, index, tail):
        return "statement" if response.text.startswith("A:") else "leading option"  # "A:" may also mean "Answer:"
    line_end = (forms.LINE_END if mention.letter else forms.SENTENCE_END).match(tail)
    if (
        not is_leading
        and line_end
        and forms.LONE_OPTION_LEAD.fullmatch(response.sentence_before(mention.start))
        and not _continues_list(response, index, bool(item_starts))
    ):
        return "last line"
    # Yes/no questions: the bare word at the start of a clause is enough.
    if not response.lettered and is_closed and lead.matches(forms.BARE_LEAD):
        return "statement"
    is_named_by_text = mention.text and (response.multiple or not mention.letter)
    if is_named_by_text and _is_seen(response, mention, lead, tail, is_closed) and _stands_alone(response, index):
        return "option seen"
    return None


def _is_compared(response: PlainResponse, index: int, end: int) -> bool:
    """Return True if the option is compared favourably, or is a superlative.

    For example "the kidney is larger than the spleen".
    """
    comparison = forms.COMPARISON_FOLLOWS.match(response.lowered, end)
    if comparison is None or not comparison["than"]:
        return comparison is not None
    following = response.mentions[index + 1 : index + 2]
    return (
        bool(following)
        and following[0].start - comparison.end() < 20
        and following[0].options != response.mentions[index].options
    )


def _is_number_of_item(response: PlainResponse, mention: Mention, tail: str) -> bool:
    """Return True if a number only enumerates a list item ("2. Then I compare")."""
    is_numeric = mention.text and not mention.letter and not response.options.numeric.isdisjoint(mention.options)
    if not is_numeric or re.match(r"[.)]\s+\w", tail) is None or not response.begins_line(mention):
        return False
    return response.lowered[mention.start].isdigit() and len(forms.ITEM_NUMBER.findall(response.text)) > 1


def _adversative_end(lead: str) -> int:
    """Return the end of the last "but" of a lead-in ("at first I thought B, but ..."), or 0."""
    return max((adversative.end() for adversative in forms.ADVERSATIVE.finditer(lead)), default=0)


def _ends_after(response: PlainResponse, mention: Mention, tail: str) -> bool:
    """Return True if the option phrase ends at the mention and does not continue.

    It continues in "A or B" and "A-lines".
    """
    word = response.lowered[mention.start : mention.end]
    if (response.options.yes_no and not mention.letter and " " not in word) or word in (
        "yes",
        "no",
    ):
        return forms.YES_NO_END.match(tail) is not None
    if mention.letter and mention.text and forms.LETTER_THEN_SENTENCE.match(response.text, mention.start):
        return True
    if mention.bracketed and not mention.text and response.text[mention.end - 1] == ")":
        return forms.ALTERNATIVE_FOLLOWS.match(tail) is None
    if mention.bracketed and forms.UNPUNCTUATED_SENTENCE.match(response.text, mention.end):
        return True
    end_pattern = forms.LETTER_END if mention.letter and not mention.text else forms.TEXT_END
    return end_pattern.match(tail) is not None


def _is_agreement(response: PlainResponse, mention: Mention, lead: str) -> bool:
    """Return True for "that is right" or "it was left" where right and left are options."""
    agreement_phrases = {
        "right": ("that is ", "that is quite ", "you are "),
        "left": ("was ", "are ", "were ", "been "),
    }
    return lead.endswith(agreement_phrases.get(response.lowered[mention.start : mention.end], "?"))


def _phrase_end(response: PlainResponse, mention: Mention) -> int:
    """Return the end of the mention including a following generic or counted noun ("3 nodules")."""
    if response.options.are_sides and mention.text:
        noun = forms.SIDED_NOUN_FOLLOWS.match(response.lowered, mention.end)
        return noun.end() if noun else mention.end
    if mention.text and (noun := forms.GENERIC_NOUN_FOLLOWS.match(response.lowered, mention.end)) is not None:
        return noun.end()
    if mention.text and not response.options.numeric.isdisjoint(mention.options):
        counted = (forms.UNIT_FOLLOWS if mention.letter else forms.COUNTED_NOUN_FOLLOWS).match(
            response.lowered, mention.end
        )
        return counted.end() if counted else mention.end
    return mention.end


def _is_leading_answer(response: PlainResponse, index: int, tail: str) -> bool:
    """Return True if the option that a response begins with is its answer.

    The first item of a list, an everyday word ("None of ...") and the beginning of a longer
    sentence are not answers.
    """
    mention = response.mentions[index]
    if mention.letter:
        if not mention.text and re.match(r"\.\s[a-z]", response.text[mention.end :]):
            return False  # "E. coli"
        # A dash between the letter and its text is not a minus sign ("C - 2").
        label_words = tokenize(
            re.sub(r"^\W*\s[-–]\s", "", response.text[mention.end : response.line_end(mention.end)])
        ).words
        if not mention.text and response.options.others_begin_with(label_words, mention.options):
            return False  # "B: right ventricle", but option A begins with these words
        following = response.mentions[index + 1] if index + 1 < len(response.mentions) else None
        if response.multiple or following is None or not (following.letter and following.text and mention.text):
            return True
        return (
            following.options == mention.options
            or re.search(r"\w{2}", response.text[mention.end : following.start]) is not None
        )
    if response.options.yes_no:
        return True
    if response.lowered[mention.start : mention.end] in COMMON_WORDS | DESCRIPTIVE_WORDS:
        return re.match(r"\W*(?:$|\n|[.!])", tail) is not None
    return forms.LEADING_OPTION_END.match(tail) is not None and _stands_alone(response, index)


def _stands_alone(response: PlainResponse, index: int) -> bool:
    """Return True if the sentence names no other option, except as a contrast or a neighbour.

    For example "a cyst rather than an abscess".
    """
    mention = response.mentions[index]
    start, stop = response.sentence_span(max(mention.end - 1, 0))
    option_words = {word for position in mention.options for word in response.options.words[position]}
    adjectives = (
        set((forms.TRAILING_ADJECTIVES.search(response.sentence_before(mention.start)) or [""])[0].split())
        - option_words
    )
    if any(not adjectives.isdisjoint(words) for words in response.options.words):
        return False  # "a calcified nodule", with options "nodule" and "calcified mass"
    contrast = forms.CONTRAST_WORD.search(response.lowered, mention.end, stop)
    for following in response.mentions[index + 1 :]:
        if following.start >= stop:
            break
        is_contrasted = contrast is not None and contrast.end() <= following.start
        if following.options != mention.options and (
            not is_contrasted or _Lead(response.lead_before(following.start)).matches(forms.SEEN_LEAD)
        ):
            return False
    previous = response.mentions[index - 1] if index else None
    if previous is None or previous.start < start or previous.options == mention.options:
        return True
    if response.options.sentence_options.issuperset(previous.options):
        return False
    conjunction = re.search(
        r"\b(?:and|while|whereas|or)\b|\b(?:is|are|has)\b[^,;]*[,;]",
        response.lowered[previous.end : mention.start],
    )
    return conjunction is None and not _Lead(response.lead_before(previous.start)).matches(forms.SEEN_LEAD)


def _continues_list(response: PlainResponse, index: int, has_list: bool) -> bool:
    """Return True if a line that contains only an option is an item of a list.

    The line above or below it is then an item with another option.
    """
    mention = response.mentions[index]
    if response.multiple:
        return has_list
    if forms.announces_list(response.lowered[: mention.start]):
        return True
    for start in (index - 1, index):
        if 0 <= start < len(response.mentions) - 1:
            upper, lower = response.mentions[start], response.mentions[start + 1]
            are_in_order = upper.letter and lower.letter and upper.options < lower.options
            if are_in_order and response.begins_line(upper) and response.text.count("\n", upper.end, lower.start) == 1:
                return True
    return False


def _is_seen(response: PlainResponse, mention: Mention, lead: _Lead, tail: str, is_closed: bool) -> bool:
    """Return True if the clause reports an option's text as seen."""
    if _is_agreement(response, mention, lead.text):
        return False
    is_only_option = response.is_only_named(mention)
    is_everyday_word = (
        not (response.options.are_sides and is_only_option)
        and response.lowered[mention.start : mention.end] in COMMON_WORDS | DESCRIPTIVE_WORDS
    )
    if is_everyday_word and not forms.IMAGE_SUBJECT_LEAD.search(lead.text):
        return False
    if lead.matches(forms.BARE_LEAD) and (
        forms.SEEN_FOLLOWS.match(tail) or (is_closed and response.options.sentence_options.issuperset(mention.options))
    ):
        return True
    if not response.options.numeric.isdisjoint(mention.options) and lead.text.endswith(("= ", "=")):
        return is_closed and not re.search(r"\w", response.text[mention.end :])
    if not is_closed and not (is_only_option and _repeats_noun(tail, lead.text)):
        return False
    return (
        lead.matches(forms.SEEN_LEAD)
        or bool(forms.CONDITIONAL_LEAD.match(lead.text))
        or (is_only_option and lead.matches(forms.PREDICATE_LEAD))
    )


def _repeats_noun(tail: str, lead: str) -> bool:
    """Return True if the sentence ends by repeating a noun of its subject.

    For example "the leaf with most veins is the hastate leaf".
    """
    noun = re.match(r"[\"')]*\s+([a-z]{3,})[\"')]*\s*(?:$|[.,!;\n])", tail)
    return noun is not None and re.search(rf"\b{noun[1]}\b", lead) is not None
