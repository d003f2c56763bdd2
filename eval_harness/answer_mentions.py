"""Where a response names options: by letter in every dress, by text, in an answer statement; and whether it means them or denies them.

Functions return the positions named, None where they find nothing, and -1 among them for a letter outside the options.
Not here: the order in which they are asked (`answers.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataset_builders.schema import LETTERS
from eval_harness.answer_text import OptionTexts, named_option

Found = tuple[int, ...] | None

_OPEN, _CLOSE = r"[\"'(\[{<«「【]*", r"[\"')\]}>»」】]*"
_HEAD = re.compile(
    rf"[\s:=>*,-]*(?:(?:the|only|definitely|clearly|most likely|most probably|probably|likely|both|either|indeed|simply)\s+)*(?:(?:correct |best |right )?(?:options?|choices?|answers?|letters?)\b\s*[:#]?\s*)?"
    rf"{_OPEN}\s*([A-Za-z])(?![^\W_])(?P<close>{_CLOSE})"
)
_NEXT = re.compile(
    rf"\s*(?P<by>,\s*and|,\s*or|,|/|&|\+|;|and|or|、|\s)\s*(?:options?\s+)?{_OPEN}([A-Za-z])(?![^\W_])(?P<close>{_CLOSE})",
    re.IGNORECASE,
)
_AFTER_A = re.compile(
    r"\s+(?!(?:and|or|is|was|because|since|as|due|for|based|given|not|rather|with|which|but|in|on|from|would|seems?|appears?|the|i|it|this|that|instead|over|to)\b)[A-Za-z]"
)
_ENDS = re.compile(r"\s*(?:$|\n|[.,;:!?)\]}\"'>|/&]|-\s|and\b|or\b)")
_NOT_A_LETTER = re.compile(r"['-]\w|\s?[%°+]|\.\w")

_ADJECTIVE = r"(?:final|correct|right|best|true|chosen|selected|appropriate|likely|accurate|suitable|my)"
_CUE = re.compile(
    r"\b(?P<word>answers?|options?|choices?|letters?|response|selection|conclusion|diagnosis)\b[\"'*]*(?P<mid>[^.\n:=?!]{0,120}?)"
    r"(?:\s*(?P<link>\bis\b|\bare\b|\bwas\b|\bwould be\b|\bshould be\b|\bmust be\b|\bseems to be\b|\bappears to be\b|:|=>|=|->|→|⇒|–|—))[\"'\s]*(?:(?:is|are|be|:)\s*)*",
    re.IGNORECASE,
)
_PLURAL_OK = re.compile(rf"\b{_ADJECTIVE}\W+(?:\w+\W+){{0,2}}$", re.IGNORECASE)
_OTHERS = re.compile(
    r"\b(?:other|another|remaining|wrong|incorrect|alternative|possible|following|these|given|available|provided|two|three|four|five|if|were|none of the)\b\W+(?:\w+\W+){0,2}$",
    re.IGNORECASE,
)
_CHOOSE = re.compile(
    r"\b(?:(?:i|we)(?:'ll|'d|\s+will|\s+would)?(?:\s+\w+){0,2}?\s+(?:choose|chose|pick|picked|select|selected|go with|going with|say|think|believe|answer|opt for|vote for)(?:\s+(?:that\s+)?(?:it\s+is|it's|the\s+answer\s+is))?"
    r"|(?:therefore|thus|hence|so|consequently|finally|in conclusion|overall|in summary)\b[,:]?(?:\s+(?:it is|it's|i choose|the))?"
    r"|(?:wait|actually|correction|scratch that|on second thought|i mean|rather)\b[,.:!\s-]*(?:no\b[,.\s]*)?(?:it is|it's|that is|should be|make that)?"
    r"|(?:it|this)(?:'s| is| must be| should be| has to be)|\bmust be|(?:correct|best|right) (?:answer|option|choice)|(?:choose|select|pick)(?:ing)?)[\s,:]+",
    re.IGNORECASE,
)
_IS_CORRECT = re.compile(
    r"[\"')\]}.:]*\s*(?:(?:is|would be|seems|appears to be|as)\s+(?:indeed |clearly |definitely |most likely |probably )?(?:the\s+)?(?:\w+\s+){0,3}?(?:correct|right|best|answer|true|most likely|most appropriate|most accurate|most suitable)\b|[-:–—]\s*(?:correct|true|right)\b)",
    re.IGNORECASE,
)
_BOUNDARY = re.compile(
    r"(?<![^\w][A-Za-z])[.!?]\s|[;\n]|\b(?:but|however|although|though|whereas|while)\b|,\s*(?:and|so|the|which|it|this|therefore|thus|because|we|i|there|making)\b",
    re.IGNORECASE,
)
_NEGATOR = re.compile(
    r"\b(?:no|not|never|neither|nor|without|absence of|absent|lacks?|lack of|rul(?:es?|ed|ing) out|exclud\w+|eliminat\w+|rather than|instead of|unlike|as opposed to|versus|vs|other than|except|apart from|negative for|unlikely|less likely|incorrect|wrong|denies|free of|against|other options?|other choices?|alternatives?|differentials?|distinguish\w*|differentiat\w*|inconsistent with)\b(?!\s+only\b)",
    re.IGNORECASE,
)
_SHORT_SCOPE = re.compile(
    r"\b(?:without|unlike|rather than|instead of|as opposed to|other than|apart from)\b[^,]*,", re.IGNORECASE
)
_DENIED_AFTER = re.compile(
    r"[\"')\]}]*(?:\s*[,(]?[^.;\n,]{0,60}?)?\s*(?:\b(?:is|are|was|were|can|could|may|would|does|do|did|has|have|seems?|appears?|being)\s+(?:\w+\s+){0,2}?(?:not|incorrect|wrong|unlikely|ruled out|excluded|absent|inconsistent|less|inaccurate|unrelated|inappropriate|impossible|eliminated|irrelevant|false|improbable)\b"
    r"|\b(?:cannot|can not|does not|do not)\b)|[\"')\]}.:]*\s*[-:–—(]?\s*(?:incorrect|wrong|not correct|false|unlikely|no\b|not\b|ruled out|eliminated|excluded|✗|❌|✘)",
    re.IGNORECASE,
)


def whole_letters(text: str, count: int, multiple: bool) -> Found:
    """A response that is nothing but letters: "B", "(b)", "B.", "option B", "A and C", for multiple choice also "ACD"."""
    if len(text) > 200:
        return None
    bare = text.strip(" \t\n\"'()[]{}<>.,:;!#*-|/\\=")
    if len(bare) == 1 and bare.isascii() and bare.isalpha():
        return (_position(bare, count),)
    if multiple and 1 < len(bare) <= count and bare.isascii() and bare.isalpha() and bare.isupper():
        places = [_position(letter, count) for letter in bare]
        return tuple(places) if places == sorted(set(places)) and places[0] >= 0 else None
    head = _HEAD.match(text)
    if head is None:
        return None
    letters, end, hedged = _letter_list(text, head, count, strict=False)
    if not letters or re.fullmatch(r"[\W_]*", text[end:]) is None:
        return None
    if hedged and len(letters) > 1:
        return tuple(letters) if not multiple else (letters[0], letters[1]) if False else ()
    return tuple(letters)


def last_statement(text: str, count: int, texts: OptionTexts | None, multiple: bool) -> Found:
    """The last answer statement: "the answer is B", "Answer: femur", "B is correct", "I choose C", "so, it is D"."""
    best: tuple[int, Found] = (-1, None)
    for place, found in _statements(text, count, texts, multiple):
        if place >= best[0]:
            best = (place, found)
    return best[1]


def _statements(
    text: str, count: int, texts: OptionTexts | None, multiple: bool
) -> Iterator[tuple[int, tuple[int, ...]]]:
    position = 0
    while (cue := _CUE.search(text, position)) is not None:
        position = cue.start() + len(cue["word"])
        plural = cue["word"].lower() in ("options", "choices", "letters") or (cue["link"] or "").lower() == "are"
        before = text[max(0, cue.start() - 40) : cue.start()]
        if _OTHERS.search(before) or (plural and not multiple and not _PLURAL_OK.search(before)):
            continue
        if re.search(r"\b(?:not|with|choices are|options are)\b", cue["mid"]):
            continue
        found = _target(text, cue.end(), count, texts, multiple)
        if found is not None:
            yield cue.start(), found
    for cue in _CHOOSE.finditer(text):
        if re.search(r"\bnot\b", cue[0]) or _negated_before(text, cue.start()):
            continue
        found = _letters_at(text, cue.end(), count, strict=True)
        if found is not None:
            yield cue.start(), found
    for head in re.finditer(rf"(?<![^\W_]){_OPEN}([A-Z])(?![^\W_]){_CLOSE}", text):
        place = LETTERS.index(head[1])
        if place >= count:
            continue
        tail = _IS_CORRECT.match(text, head.end())
        if tail is None and texts is not None and texts.pattern is not None:
            gap = re.compile(r"[.:)\s-]{0,4}").match(text, head.end())
            inner = texts.pattern.match(text, gap.end()) if gap else None
            if inner is not None and named_option(inner[0], texts) == place:
                tail = _IS_CORRECT.match(text, inner.end()) or re.compile(
                    r"\s+the most (?:appropriate|accurate|likely|suitable)"
                ).match(text, inner.end())
        if tail is not None and not _negated_before(text, head.start()):
            yield head.start(), (place,)


def _target(text: str, start: int, count: int, texts: OptionTexts | None, multiple: bool) -> Found:
    """What an answer statement names from `start` on: letters, else option text in the same sentence."""
    found = _letters_at(text, start, count, strict=False)
    if found is not None and found != (-1,):
        return found
    if texts is not None and texts.pattern is not None:
        while start < len(text) and text[start] in " \n\t\"'(":
            start += 1
        end = _sentence_end(text, start)
        mentions = [
            (match, named_option(match[0], texts))
            for match in texts.pattern.finditer(text, start, min(end, start + 300))
        ]
        meant = [
            option
            for match, option in mentions
            if option is not None and not is_denied(text, match.start(), match.end())
        ]
        if meant and (multiple or len(set(meant)) == 1):
            return tuple(dict.fromkeys(meant))
        if meant:
            first = mentions[0][0]
            return (
                (meant[0],)
                if first.start() - start < 25
                and re.match(
                    r"\W*(?:rather|which|because|as|since|not|given|due|and not)\b|[.,;]", text[first.end() :][:20]
                )
                else None
            )
    return found


def _letters_at(text: str, start: int, count: int, strict: bool) -> Found:
    head = _HEAD.match(text, start)
    if head is None:
        return None
    letters, _, _ = _letter_list(text, head, count, strict)
    return tuple(letters) if letters else None


def _letter_list(text: str, head: re.Match[str], count: int, strict: bool) -> tuple[list[int], int, bool]:
    """Letters from `head` on: their positions, where they end, and whether "or" joins them."""
    if not _is_letter(text, head, 1, strict):
        return [], head.end(), False
    letters, end, hedged = [_position(head[1], count)], head.end(), False
    while (
        (more := _NEXT.match(text, end)) is not None and more["by"].strip() and _is_letter(text, more, 2, strict=True)
    ):
        if more["by"].strip().lower() == "," and more[2] in "Ii" and count < 9:
            break
        hedged |= "or" in more["by"].lower()
        letters.append(_position(more[2], count))
        end = more.end()
    return letters, end, hedged


def _is_letter(text: str, match: re.Match[str], group: int, strict: bool) -> bool:
    """Whether a lone letter stands for an option and is not an article, a pronoun, or part of a word ("I'm", "C-arm")."""
    letter, end = match[group], match.end(group)
    if _NOT_A_LETTER.match(text, end):
        return False
    dressed = bool(match["close"]) or (match.start(group) > 0 and text[match.start(group) - 1] in "\"'([{<")
    if dressed:
        return True
    if letter.islower() or letter == "I":
        return _ENDS.match(text, end) is not None
    if letter == "A" and _AFTER_A.match(text, end):
        return False
    return (
        not strict
        or _ENDS.match(text, end) is not None
        or bool(re.match(r"\s+(?:because|since|as|is|based|given)\b", text[end : end + 12]))
    )


def leading_labels(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """A response that begins with its letter ("B: a mass", "B) ...", "B - ..."), and does not go on to list other options."""
    head = re.match(
        rf"\W{{0,6}}(?:options?\s+)?{_OPEN}([A-Z]|[a-z](?=[)\].:]))(?![^\W_])(?:{_CLOSE}\s*[.:)\]\-–—,]|{_CLOSE[:-1]}+|\s*\n)",
        text,
    )
    if head is None or _NOT_A_LETTER.match(text, head.end(1)):
        return None
    place = _position(head[1], count)
    if place < 0 and texts.pattern is not None and asserted_texts(text, texts, multiple) is not None:
        return None
    labels = {line[1] for line in _LINE_LABEL.finditer(text) if _position(line[1], count) >= 0}
    if len(labels) > 1 or is_denied(text, head.start(1), head.end()):
        return None
    letters, _, _ = (
        _letter_list(text, _HEAD.match(text) or head, count, strict=False) if _HEAD.match(text) else ([place], 0, False)
    )
    return tuple(letters) if letters else (place,)


_LINE_LABEL = re.compile(
    rf"^[ \t]*(?:[-•*][ \t]*)?(?:option[ \t]+)?{_OPEN}([A-Z])(?:{_CLOSE}[ \t]*[.:)\-–]|{_CLOSE[:-1]}+)", re.MULTILINE
)
_LABEL_BEFORE = re.compile(rf"(?:^|[^\w']){_OPEN}([A-Za-z])(?:{_CLOSE}\s*[.:)\]\-–=]+|{_CLOSE[:-1]}+)\s*{_OPEN}$")


def labelled_mentions(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """Options named by letter and text together ("C. rib fracture"): the one that is meant, or the ones for multiple choice.

    A list of all options with a verdict on each counts by the verdicts.
    """
    if texts.pattern is None:
        return None
    meant: dict[int, bool] = {}
    denied: set[int] = set()
    for match in texts.pattern.finditer(text):
        option = named_option(match[0], texts)
        label = _LABEL_BEFORE.search(text[max(0, match.start() - 14) : match.start()])
        if option is None or label is None or _position(label[1], count) != option:
            continue
        line_end = text.find("\n", match.end())
        verdict = text[match.end() : line_end if line_end >= 0 else len(text)][:200]
        if is_denied(text, match.start() - len(label[0]) + 1, match.end()) or _WRONG.match(verdict):
            denied.add(option)
        else:
            meant[option] = meant.get(option, False) or _RIGHT.match(verdict) is not None
    alive = [option for option in meant if option not in denied]
    right = [option for option in alive if meant[option]]
    if right and len(meant) + len(denied) > len(right):
        alive = right
    if len(alive) == 1 or (multiple and alive and len(alive) < count):
        return tuple(alive)
    return None


_RIGHT = re.compile(r"\W{0,4}(?:this is |is )?(?:the )?(?:correct|right|true|yes|✓|✔|✅)", re.IGNORECASE)
_WRONG = re.compile(r"\W{0,4}(?:this is |is )?(?:incorrect|wrong|false|no\b|not\b|unlikely|✗|❌|✘)", re.IGNORECASE)
_DRESSED = re.compile(
    r"\(([A-Z])\)|\[([A-Z])\]|\"([A-Z])\"|(?<![^\W_])'([A-Z])'|\b(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Ll]etter)\s+([A-Z])(?![\w'-])"
)


def dressed_letters(text: str, count: int, multiple: bool) -> Found:
    """Letters in brackets or quotes, or after "option": the one that is not denied."""
    alive: list[int] = []
    denied: set[int] = set()
    for match in _DRESSED.finditer(text):
        place = _position(next(letter for letter in match.groups() if letter), count)
        if place < 0:
            continue
        (denied.add if is_denied(text, match.start(), match.end()) else alive.append)(place)
    alive = [place for place in dict.fromkeys(alive) if place not in denied]
    return tuple(alive) if len(alive) == 1 or (multiple and 0 < len(alive) < count) else None


_NOUN_BEFORE = re.compile(
    r"(?:vitamins?|hepatitis|influenza|type|types|grade|class|stage|group|category|factor|protein|complex|segment|zone|level|weber|stanford|phase|part|point|figure|fig|panel|table|case|image|view|lead|appendix|section|immunoglobulin|ig|strep(?:tococcus)?|haemophilia|hemophilia|plan|line|lines|row|column)\s*\W?\s*$",
    re.IGNORECASE,
)
_NOUN_AFTER = re.compile(
    r"\s+(?:cells?|lymphocytes?|lines?|waves?|scan|arm|sign|spine|section|fibers?|symptoms?|antigen|virus|mode|coli|streptococc\w*|weighted|vertebra\w*|ring|loop|shaped?|level)\b",
    re.IGNORECASE,
)
_BARE = re.compile(r"(?<![\w'\"([{.-])([A-Z])(?![\w'\")\]}-])")


def bare_letters(text: str, count: int, multiple: bool) -> Found:
    """A capital letter by itself that can only be an option ("most likely B"), in a short response; never the article or a pronoun."""
    if len(text) > 300:
        return None
    alive: list[int] = []
    denied: set[int] = set()
    for match in _BARE.finditer(text):
        place = _position(match[1], count)
        if place < 0 or match[1] == "I" or (match[1] == "A" and _AFTER_A.match(text, match.end())):
            continue
        if _NOUN_BEFORE.search(text[max(0, match.start() - 24) : match.start()]) or _NOUN_AFTER.match(
            text, match.end()
        ):
            continue
        (denied.add if is_denied(text, match.start(), match.end()) else alive.append)(place)
    alive = [place for place in dict.fromkeys(alive) if place not in denied]
    return tuple(alive) if len(alive) == 1 or (multiple and 0 < len(alive) < count) else None


_ASSERTS = re.compile(
    r"\b(?:is|are|was|were|be|shows?|showing|shown|reveals?|depicts?|displays?|demonstrates?|illustrates?|represents?|indicates?|indicative of|suggests?|suggestive of|consistent with|compatible with|appears?|looks? like|likely|probably|see|evidence of|presence of|diagnos\w+|corresponds? to|characteristic of|typical of|contains?|has|have|there|matches|choose|select|think|believe|with|visible|highlights?)\b",
    re.IGNORECASE,
)
_SEEN_AFTER = re.compile(
    r"[^.;\n]{0,60}?\b(?:is|are|can be|was|were)\s+(?:\w+ly\s+)?(?:seen|visible|present|shown|noted|evident|demonstrated|observed|depicted|displayed|illustrated|highlighted|marked|the (?:correct|best|most|right|answer)|most likely|likely|fractured)\b",
    re.IGNORECASE,
)
_DEFINES_AFTER = re.compile(
    r"\s+(?:is|are|was|were|refers?|means?|describes?|can|may|occurs?|usually|typically|often)\b", re.IGNORECASE
)


def asserted_texts(text: str, texts: OptionTexts, multiple: bool) -> Found:
    """Options named by their text alone, where the sentence says that they are there; a bare definition says nothing."""
    if texts.pattern is None:
        return None
    meant: list[int] = []
    for match in texts.pattern.finditer(text):
        option = named_option(match[0], texts)
        if option is None or is_denied(text, match.start(), match.end()):
            continue
        before = _clause_before(text, match.start())
        lead = re.fullmatch(r"\W*(?:(?:a|an|the)\s+)?", before, re.IGNORECASE) is not None
        if option in texts.common:
            if not (
                lead and match.start() < 8 and re.match(r"\W*(?:$|[.,;:!\n])", text[match.end() : match.end() + 3])
            ):
                continue
        elif not (
            _ASSERTS.search(before)
            or _SEEN_AFTER.match(text, match.end())
            or (lead and not _DEFINES_AFTER.match(text, match.end()))
        ):
            continue
        meant.append(option)
    alive = tuple(dict.fromkeys(meant))
    return alive if len(alive) == 1 or (multiple and 0 < len(alive) < len(texts.words)) else None


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether the mention text[start:end] is denied in its clause ("not A", "A is wrong", "unlike A")."""
    return _negated_before(text, start) or _DENIED_AFTER.match(text[end : end + 120]) is not None


def _negated_before(text: str, start: int) -> bool:
    before = _SHORT_SCOPE.sub(" ", _clause_before(text, start))
    return _NEGATOR.search(before) is not None


def _clause_before(text: str, start: int) -> str:
    before = text[max(0, start - 160) : start]
    last = None
    for last in _BOUNDARY.finditer(before):
        pass
    return before[last.end() :] if last else before


_SENTENCE_END = re.compile(r"(?<![^\w][A-Za-z])[.!?](?:\s|$)|\n")


def _sentence_end(text: str, start: int) -> int:
    match = _SENTENCE_END.search(text, start)
    return match.start() if match else len(text)


def _position(letter: str, count: int) -> int:
    place = LETTERS.index(letter.upper())
    return place if place < count else -1
