"""Answer statements: "the answer is B", "Answer: femur", "B is correct", "I choose C", "so, it is D". The last one counts.

See also: letters and texts outside such statements (`letters.py`, `mentions.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.letters import (
    CLOSE,
    CLOSED,
    ENDS,
    OPEN,
    REASON,
    Found,
    head_at,
    is_named_thing,
    letter_list,
    letters_at,
    letters_run,
    most,
    only_letters,
    position,
)
from eval_harness.answer_reading.mentions import (
    LABEL_GAP,
    REST,
    both_named,
    labelled_options,
    part_of_both,
    text_mentions,
)
from eval_harness.answer_reading.options import OptionTexts
from eval_harness.answer_reading.polarity import is_asked, is_denied, is_supposed, negated_before, sentence_end
from eval_harness.answer_reading.words import (
    ONE_LETTER,
    WIDE,
    beginnings,
    bits_of,
    in_lower_case,
    is_wide,
    lowered_of,
    phrase,
    phrase_of,
    places,
    words_in,
)

_LINK = r"\b(?:is|are|was|would be|should be|must be|seems to be|appears to be|ist|lautet|est|es)\b|\b[èé]|:|=>|=|->|→|⇒|–|—|\s-\s"
_CUE = re.compile(
    r"(?:(?<![^\W_])|(?<=[\u3040-\uffff]))(?P<word>(?:answers?|ans|options?|choices?|letters?|response|selection|conclusion"
    r"|diagnosis|description|classification|impression(?=\s*[:\n])|respuesta|réponse|antwort|lösung|risposta"
    r"|resposta|ответ|correct(?=\s*:)|final(?=\s*:))(?![^\W_])|答案|选项|正解|정답)"
    rf"[\"'*]*(?P<mid>[^.\n:=?!]{{0,120}}?)(?:\s*(?P<link>{_LINK}"
    rf"|[是为為はは은는】]|(?<=ans)\.|\n))[\"'\s]*(?:(?:(?:is"
    rf"|are|be)\b|:)\s*)*",
    re.IGNORECASE,
)
_CUE_WORD = re.compile(
    r"ans(?:wer)?|option|choice|letter|response|selection|conclusion|diagnosis|description|classification|impression|respuesta"
    r"|réponse|antwort|lösung|risposta"
    r"|resposta|ответ|correct|final|答案|选项|正解|정답"
)
"""In a text in lower case, which is searched faster."""
_CUE_BEGINNINGS = tuple(
    words_in(
        "ans option choice letter response selection conclusion diagnosis description classification impression antwort risposta resposta"
        " respuesta réponse lösung ответ correct final"
    )
)
_CUES = beginnings("answer " + " ".join(_CUE_BEGINNINGS))
"""What `_CUE` may begin with: looked for first, since it is found faster."""
_OTHERS = phrase(
    "all other another each every any least remaining wrong incorrect alternative possible following these given available provided"
    " two three four five none last second third lowest worst weakest differential",
    r"\b(?:all|other|another|each|every|any|least|(?<!only )(?<!last )remaining|wrong|incorrect|alternative|possible|following|these|given"
    r"|available|provided|two|three|four|five"
    r"|none of the)\b[^\w.\n!?;:,\"]+(?:\w+[^\w.\n!?;:,\"]+){0,2}$"
    r"|\b(?:last|second|third|lowest|worst|weakest|differential)(?:[ -]best)?\s+$",
)
_DOUBTED = phrase(
    "doubt not",
    r"\b(?:doubt|not (?:say|think|believe|sure|certain|agree|claim|mean|confirm))\s+(?:(?:that|if|whether)\s+)?(?:(?:the|it|my)\s+)?"
    r"(?:(?:correct|right|best|final)\s+)?$",
)
_LONE = phrase_of(
    re.compile(
        r"(?<![^\W_])(?:[B-Zb-z]|[Aa](?![^\S\n]+[a-z]))(?![^\W_])"
        rf"(?:(?<=[\"'(\[{{<].)|(?={ENDS.pattern}|[»」]|{REASON.pattern}))"
    ),
    ONE_LETTER,
)
_CHOOSE = phrase(
    "i we therefore thus hence so consequently finally in overall change changing revise revising update correct switch switching"
    " wait actually correction scratch on it this must best right choose choosing select selecting pick picking guess guessing left"
    " leaving leaves going go settle most more",
    r"(?P<cue>\b(?:(?:i|we)(?:'ll|'d|\s+will|\s+would)?(?:\s+\w+){0,2}?\s+(?:choose|chose|pick|picked|select|selected|go with"
    r"|going with|go for|settle on|lean(?:ing)? towards?|say"
    r"|think|believe|answer|opt for"
    r"|vote for)(?:\s+(?:that\s+)?(?:it\s+is|the\s+answer\s+is))?"
    r"|(?:therefore|thus|hence|so|consequently|finally|in conclusion|overall|in summary)\b[,:]?(?:\s+(?:it is|i choose|the))?"
    r"|(?:change|changing|revise|revising|update|correct)\s+(?:my|the)\s+(?:answer|choice|response)\s+to|(?:switch|change)(?:ing)?\s+to"
    r"|(?:wait|actually|correction(?=\s*[:,.!\n-])|scratch that|on second thought"
    r"|i mean)\b[,.:!\s-]*(?:no\b[,.\s]*)?(?:it is|that is|should be"
    r"|make that)?"
    r"|(?:it|this)(?: is| must be| should be| has to be)|\bmust be|(?:correct|best|right) (?:answer|option|choice|[a-z]+(?: [a-z]+)? is)"
    r"|(?:choose|select|pick|guess)(?:ing)?|left with|leaving|leaves(?: us with)?|going with|go for|settle on"
    r"|(?:most|more) (?:likely|probably))[\s,:]+)"
    r"(?:(?:the|only|definitely|clearly|probably|likely|simply|just)\s+)*(?:(?:correct |best |right )?"
    r"(?:options?|choices?|answers?|letters?)\b\s*[:#]?\s*)?[\s:=>*,\"'(\[{<«「-]{0,8}$",
)
_CALLS_CORRECT = beginnings("correct right best better answer true more most")
_CALLS_TEXT = beginnings("most more likely best better correct closest nearest my only")
_IS_CORRECT = re.compile(
    r"[\"')\]}.:]*\s*(?:(?:is|are|would be|seems|appears to be|as)\s+(?:indeed |clearly |definitely |most likely |probably )?"
    r"(?:the\s+)?(?:\w+\s+){0,3}?"
    r"(?:correct|right(?!\s+(?!because|since|as|answer|option|choice|one|here|in this)\w)|best|answers?|true|(?:(?:more"
    r"|most) (?:likely|probable)|better(?:\s+(?:choice|option|answer|fit|match))?)"
    r"(?=\W*(?:$|[.,;:\n)]|than\b|given\b|because\b|since\b|here\b))|most likely|most appropriate|most accurate"
    r"|most suitable)\b|[-:–—]\s*(?:correct|true"
    r"|right(?![^\S\n]+\w))\b|\s*[是为](?:正确|最佳|最合适)的?(?:答案|选项|选择))",
    re.IGNORECASE,
)
_FAINT = re.compile(
    r"\b(?:not|incorrect|wrong|less|least|unlikely|false|poor|possible|potential|plausible|common|another|alternative)\b",
    re.IGNORECASE,
)
_CAPITAL = re.compile(rf"(?<![^\W_]){OPEN}([A-Z])(?![^\W_])(?P<close>{CLOSE})")
_WHY = re.compile(
    r"\W*(?:\((?:option |choice )?[A-Z]\)\W*)?"
    r"(?:although|though|but|while|whereas|however|rather|which|because|as|since|not|given|due|and not)\b|[.,;]",
    re.IGNORECASE,
)


def last_statement(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """What the last answer statement names; () where that is more than one option without saying which."""
    best: tuple[int, Found] = (-1, None)
    said = bits_of(text)
    for statements, words, wide in _KINDS:
        if said & words != words and not (wide and said & WIDE):
            continue
        named = statements(text, count, texts, multiple)
        if statements is _called and best[1] and not multiple:
            calls = list(named)  # "The answer is B. Statement A is true. Statement C is true."
            named = iter(calls if len({*chain.from_iterable(letters for _, letters in calls)}) == 1 else ())
        place, found = next(named, best)
        if place >= len(text):
            return found
        if place >= best[0]:
            best = (place, found)
    return best[1]


def _looked_at(text: str) -> int:
    """How many places, from the last on, are looked at for a statement of one kind."""
    return 8 + most(text) // 3


Statements = Iterator[tuple[int, tuple[int, ...]]]
"""Statements of one kind, the last first: where each begins, or the end of a text that ends with it, and what it names."""


def _after_cue(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "the answer is B", "Answer: femur"."""
    if is_wide(text):
        starts = [word.start() for word in _CUE_WORD.finditer(in_lower_case(text))]
    else:
        lowered = lowered_of(text)
        starts = [start for start in places(text, _CUES) if lowered.startswith(_CUE_BEGINNINGS, start)]
    for start in reversed(starts[-_looked_at(text) :]):
        cue = _CUE.match(text, start)
        if cue is None or not _is_cue(text, cue, multiple):
            continue
        if (letters := _ending(text, cue.end(), count)) is not None:
            yield len(text), letters
        elif (found := _target(text, cue.end(), count, texts, multiple)) is not None:
            yield cue.start(), found


def _chosen(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "I choose C", "so, it is D"."""
    for lone in _LONE.last(text, 3 * _looked_at(text))[: _looked_at(text)]:
        place = max(0, lone.start() - 60)
        cue = None if lone[0] == "I" and count < 9 else _CHOOSE.search(text, place, lone.start())
        if cue is None or "not" in cue[0].split():
            continue
        start, end = cue.start(), cue.end("cue")
        if negated_before(text, start) or is_supposed(text, start) or _DOUBTED.search(text, start - 40, start):
            continue
        if _CONNECTIVE.fullmatch(cue[0]) and _is_subject(text, lone.end(), texts):
            continue
        found = letters_at(text, end, count, strict=True)
        if found is not None and found != (-1,):
            yield start, agreeing(text, end, texts, found)


_CONNECTIVE = re.compile(r"(?:so|thus|therefore|hence|consequently|finally|overall)\W*", re.IGNORECASE)
_SAYS_OF_IT = re.compile(r"\s+(?:is|are|was|were|may|might|could|can)\b", re.IGNORECASE)


def _is_subject(text: str, start: int, texts: OptionTexts) -> bool:
    """Whether a letter that ends at text[start], perhaps with its option's text, is what the sentence speaks of ("so (A) pain is
    possible"), which chooses nothing."""
    end = start + (text[start : start + 1] in ")]")
    inner = texts.at(text, end + 1)
    end = inner.end if inner else end
    return _SAYS_OF_IT.match(text, end) is not None and _IS_CORRECT.match(text, end) is None


def _called(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "B is correct", "A and C are the right answers"."""
    passed = 0
    found = []
    for head in _capitals(text, 3 * _looked_at(text))[-_looked_at(text) :]:
        verdict = _called_correct(text, head, count, texts) if head.start() >= passed else None
        if verdict is not None:
            passed = verdict[1]
            found.append((head.start(), verdict[0]))
    yield from reversed(found)


def _capitals(text: str, most: int) -> list[re.Match[str]]:
    """Capitals by themselves, with the brackets around each: of the last so many letters."""
    starts = places(text, ONE_LETTER)
    found = (_CAPITAL.match(text, _opening(text, start)) for start in starts[-most:] if text[start].isupper())
    return list(filter(None, found))


def _opening(text: str, start: int) -> int:
    """Where the brackets begin that open before text[start], at most four."""
    for place in range(start, max(0, start - 4), -1):
        if text[place - 1] not in _OPENING:
            return place
    return max(0, start - 4)


_OPENING = frozenset("\"'([{<«「")


def _text_called(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "sarcoidosis is the most likely diagnosis"."""
    if multiple:
        return
    mentions = text_mentions(text, texts)
    for mention in reversed(mentions[-_looked_at(text) :]):
        option = mention.options[0]
        if len(mention.options) > 1 or mention.crossed or option in texts.common | texts.numeric:
            continue
        tail = _TEXT_IS_BEST.match(text, mention.end)
        if tail and part_of_both(mention.start, mention.end, both_named(text)):
            continue
        if tail and not _denied_in_clause(text, mention.start) and not is_supposed(text, mention.start):
            yield mention.start, (option,)


def _ordinal(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "the second statement is correct", where no option is itself numbered."""
    found = list(_ORDINAL.find(text))[-_looked_at(text) :]
    if found and any(word in _ORDINALS for words in texts.words for word in words):
        return
    for match in reversed(found):
        place = _ORDINALS.get(match[1].lower(), count - 1)
        if place < count and not negated_before(text, match.start()) and not is_supposed(text, match.start()):
            yield match.start(), (place,)


_ORDINALS = {word: place for place, word in enumerate(("first", "second", "third", "fourth", "fifth"))}
_ORDINAL = phrase(
    "the",
    r"\bthe (first|second|third|fourth|fifth) (?:statement|option|choice|description|sentence|caption|answer|one)"
    r" (?:is|seems|appears to be|would be) (?:clearly |most likely |indeed |probably )?(?:the )?(?:more |most )?"
    r"(?:correct|right|true|accurate|best|appropriate|likely)\b(?!\s+to\b)",
    "first second third fourth fifth",
)
_TEXT_IS_BEST = re.compile(
    r"[\"')\]]*(?: \([A-Z]\))?(?!\s*\n)(?:\s+(?:as\s+)?the (?:(?:most|only) (?:likely|probable|plausible|fitting|appropriate)|correct"
    r"|best) \w+|\s+(?:is|would be|remains) my \w+"
    r"|\s+(?:(?:more|most) \w+ly|best|better) (?:\w+s\b(?<!ss))"
    r"|\s+(?:is|are|would be|appears to be)\s+(?:by far )?(?:the )?(?:most similar|most alike|closest|nearest)\b"
    r"|\s+(?:is|are|would be|seems|remains|appears to be)\s+(?:indeed |clearly |definitely |therefore |thus )?(?:(?:by far )?the\s+)?"
    r"(?:(?:best|most \w+) (?:answer|option|choice|description)"
    r"|(?:most|more) (?:likely|probable|consistent|appropriate|accurate|plausible)|correct (?:answer|option|choice|diagnosis)"
    r"|best (?:answer|option|choice|explanation|fit|match|description))(?!\s+(?:cause|complication|differential|mimic|than|to"
    r"|in|with|when|if|among|after)\b))",
    re.IGNORECASE,
)
_OTHER_WORDS = phrase(
    "richtig korrekt ich je yo elijo escojo scelgo escolho opto c opción option opção opzione réponse respuesta",
    r"(?:(?:\b(?:richtig|korrekt) (?:ist|wäre)|\b(?:ich|je|yo) (?:wähle|nehme|choisis|elijo)|\b(?:elijo|escojo|scelgo|escolho|opto por)"
    r"|\bc'est|\b(?:opción|option|opção|opzione|réponse|respuesta) (?:correcta|correcte|correta|corretta) (?:es|est|é|è))"
    r"(?:\s+(?:la|le|die|der|das|a|o))?(?:\s+(?:option|antwort|réponse|opción|respuesta|opção|opzione))?\s*:?\s*|(?:选择|选|選|選擇"
    r"|应为|应该是|所以是)\s*(?:选项)?\s*|(?<![点不非])(?<!误的)(?<!错的)(?:为|是|等于)\s*(?=[A-Z]\W*$))"
    rf"{OPEN}([A-Z])(?![^\W_])",
)


def _in_other_words(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """The same in German, Spanish, French, Italian, Portuguese and Chinese."""
    for match in reversed(list(_OTHER_WORDS.find(text))[-20:]):
        found = letters_at(text, match.start(1), count, strict=False) if match[1].isupper() else None
        if found is not None and found != (-1,) and not is_supposed(text, match.start()):
            yield match.start(), found


_KINDS = (
    (_after_cue, _CUES.bit, True),
    (_chosen, _CHOOSE.bits | _LONE.bits, False),
    (_called, _CALLS_CORRECT.bit | ONE_LETTER.bit, True),
    (_text_called, _CALLS_TEXT.bit, False),
    (_ordinal, _ORDINAL.bits, False),
    (_in_other_words, _OTHER_WORDS.bits, True),
)
"""The kinds of statements, each with the words (bits of vocabularies) all of which a text has to say, or whether it may be wide instead."""


def _is_cue(text: str, cue: re.Match[str], multiple: bool) -> bool:
    """Whether "answer ... is" opens an answer, and not "the other options are", "if the answer were", "answer with"."""
    word, link = cue["word"].lower(), cue["link"].lower()
    if link == "\n" and (cue["mid"].strip() or word not in ("answer", "ans", "response", "conclusion", "diagnosis")):
        return False
    if (word in ("option", "choice", "选项") and _LETTER_FIRST.match(cue["mid"])) or cue["mid"].strip().isdigit():
        return False  # "Option B: femur" is a label, "Answer 2: femur" one of several
    before = text[max(0, cue.start() - 40) : cue.start()]
    if word in ("description", "classification") and not _BEST.search(before):
        return False
    if " if " in cue["mid"].lower() or _DENIED_LINK.search(cue["mid"]) or is_asked(text, cue.end()):
        return False
    plural = word in ("options", "choices", "letters") or link == "are"
    near = max(0, cue.start() - 40), cue.start()
    if _OTHERS.search(text, *near) or (plural and (not multiple or word != "answers")):
        return False
    if _DOUBTED.search(text, *near):
        return False
    return not is_supposed(text, cue.start())


_DENIED_LINK = re.compile(r"(?:\b(?:no|not)|\bn'|不|并)\s*$", re.IGNORECASE)
"""What stands before "is" and denies it ("la respuesta no es B", "答案不是 A")."""
_LETTER_FIRST = re.compile(r"\W*[A-Za-z](?![^\W_])")
_BEST = re.compile(r"\b(?:best|correct|right|final|(?:most|more) \w+)\s+$", re.IGNORECASE)


def _denied_in_clause(text: str, start: int) -> bool:
    return negated_before(text, start) and not _NEW_CLAUSE.search(text[max(0, start - 12) : start])


_NEW_CLAUSE = re.compile(r"(?<!neither)(?<!nor),\s*(?:option\s+)?\W?$", re.IGNORECASE)
"""What begins the clause of its own that calls a letter correct ("given the absence of fluid, C is more likely")."""


def _called_correct(
    text: str, head: re.Match[str], count: int, texts: OptionTexts
) -> tuple[tuple[int, ...], int] | None:
    """The letters of "B is correct", "A and C are the right answers", "making C. thyroid the most fitting answer", and where they end."""
    if LETTERS.index(head[1]) >= count or is_named_thing(text, head.start()):
        return None
    places, end, _ = letter_list(text, head.start(), count)
    places, end = (places, end) if places else ((LETTERS.index(head[1]),), head.end())
    tail = _IS_CORRECT.match(text, end)
    if tail is None and len(places) == 1:
        gap = LABEL_GAP.match(text, end)
        inner = texts.at(text, gap.end()) if gap else None
        if inner is not None and inner.option == places[0]:
            tail = _IS_CORRECT.match(text, inner.end)
    if tail is None or _FAINT.search(tail[0]) or is_supposed(text, head.start(), tail.end()):
        return None
    if _denied_in_clause(text, head.start()):
        return None
    return places, end


def _ending(text: str, start: int, count: int) -> Found:
    """The letters at text[start] where they end the text."""
    found = letters_at(text, start, count, strict=False)
    ends = found is not None and found != (-1,) and not REST.search(text, letter_list(text, start, count)[1])
    return found if ends else None


def _target(text: str, start: int, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """What an answer statement names from `start` on: letters, else option text in the same sentence."""
    found = letters_at(text, start, count, strict=False)
    if multiple:
        run = letters_run(text, start, count) or (
            only_letters(text[start:], count) if len(text) - start < 200 else None
        )
        if run is not None:
            return run
        if listed := labelled_options(text, start, texts):
            return tuple(dict.fromkeys((*(found or ()), *listed)))
    if found is not None and found != (-1,):
        listed = labelled_options(text, start, texts, 0)
        return () if listed[:2] == (0, 1) else agreeing(text, start, texts, found)
    if not texts.index:
        return found
    if texts.numeric:
        line = text[start : min(len(text), start + 200)].split("\n", maxsplit=1)[0]
        for rest in (line, re.split(r"[.;,](?=\s|$)", line)[0]):
            formula = texts.formula(rest)
            if formula is not None:
                return (formula,)
    while start < len(text) and text[start] in " \n\t\"'(":
        start += 1
    mentions = text_mentions(text, texts, start, min(sentence_end(text, start), start + 300))
    meant = [mention for mention in mentions if not is_denied(text, mention.start, mention.end)]
    if not multiple and meant and (both := both_named(text)):
        meant = [mention for mention in meant if not part_of_both(mention.start, mention.end, both)]
        if not meant:
            return ()
    options = tuple(dict.fromkeys(option for mention in meant for option in mention.options))
    if not options and found is None and len(letters_run(text, start, count) or ()) > 1:
        return ()  # "the answer is AD"
    if not options or multiple or len(options) == 1:
        return options or found
    first = meant[0]
    clear = len(first.options) == 1 and first.start - start < 25 and _WHY.match(text, first.end)
    return first.options if clear else ()


def agreeing(text: str, start: int, texts: OptionTexts, found: tuple[int, ...]) -> tuple[int, ...]:
    """`found`, unless the text of another option follows the letter ("B. <text of A>"): then nobody can say which is meant."""
    head = head_at(text, start)
    if head is None or len(found) != 1:
        return found
    if _names_another(text, head.end(), found[0], len(texts.words)):
        return ()
    gap = LABEL_GAP.match(text, head.end())
    inner = texts.at(text, gap.end()) if gap and (gap[0].strip() or head["close"]) else None
    if inner is None or inner.option in (None, found[0]) or is_denied(text, inner.start, inner.end):
        return found
    return ()


_ANOTHER = re.compile(
    rf"[^.;:\n]{{0,60}}?[\s,]+(?:or|and)\s+(?:option\s+)?(?={OPEN}([A-Z])(?:{CLOSE}\s*[,.:)]|{CLOSED}))|[^.;:\n]{{0,40}}?,\s*(?=\(([A-Z])\))"
)


def _names_another(text: str, start: int, found: int, count: int) -> bool:
    """Whether the clause goes on to name a second option that it does not deny ("A) 1% or B) 2%", "B, stroke, and C, sepsis")."""
    more = _ANOTHER.match(text, start)
    if more is None or position(more[1] or more[2], count) in (found, -1):
        return False
    return not is_denied(text, more.end(), letter_list(text, more.end(), count)[1])
