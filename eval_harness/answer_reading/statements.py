"""Answer statements: "the answer is B", "Answer: femur", "B is correct", "I choose C", "so, it is D". The last one counts.

See also: letters and texts outside such statements (`letters.py`, `mentions.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from dataset_builders.schema import LETTERS
from eval_harness.answer_reading.letters import (
    CLOSE,
    CLOSED,
    HEAD,
    OPEN,
    Found,
    is_named_thing,
    letter_list,
    letters_at,
    letters_run,
    most,
    only_letters,
    position,
)
from eval_harness.answer_reading.measures import exact
from eval_harness.answer_reading.mentions import LABEL_GAP, labelled_options, text_mentions
from eval_harness.answer_reading.options import OptionTexts, named_option
from eval_harness.answer_reading.plain_text import hints, says
from eval_harness.answer_reading.polarity import is_asked, is_denied, is_supposed, negated_before, sentence_end

_LINK = r"\bis\b|\bare\b|\bwas\b|\bwould be\b|\bshould be\b|\bmust be\b|\bseems to be\b|\bappears to be\b|:|=>|=|->|→|⇒|–|—|\s-\s"
_CUE = re.compile(
    r"(?:(?<![^\W_])|(?<=[\u3040-\uffff]))(?P<word>(?:answers?|ans|options?|choices?|letters?|response|selection|conclusion"
    r"|diagnosis|description|classification|impression(?=\s*[:\n])|respuesta|réponse|antwort|lösung|risposta"
    r"|resposta|ответ|correct(?=\s*:)|final(?=\s*:))(?![^\W_])|答案|选项|正解|정답)"
    rf"[\"'*]*(?P<mid>[^.\n:=?!]{{0,120}}?)(?:\s*(?P<link>{_LINK}|\bist\b|\blautet\b|\best\b|\bes\b|\bè|\bé"
    rf"|[是为為はは은는】]|(?<=ans)\.|\n))[\"'\s]*(?:(?:(?:is"
    rf"|are|be)\b|:)\s*)*",
    re.IGNORECASE,
)
_CUE_WORD = re.compile(
    r"ans(?:wer)?|option|choice|letter|response|selection|conclusion|diagnosis|description|classification|impression|respuesta"
    r"|réponse|antwort|lösung|risposta"
    r"|resposta|ответ|correct|final|答案|选项|正解|정답"
)
_CUES = hints(
    "answer ans option choice letter response selection conclusion diagnosis description classification impression antwort risposta"
    " resposta respuesta"
    " correct final"
)
"""What `_CUE` may begin with: looked for first, since it is found faster."""
_OTHERS = re.compile(
    r"\b(?:all|other|another|each|every|any|least|remaining|wrong|incorrect|alternative|possible|following|these|given|available"
    r"|provided|two|three|four|five"
    r"|none of the)\b[^\w.\n!?;:,\"]+(?:\w+[^\w.\n!?;:,\"]+){0,2}$"
    r"|\b(?:last|second|third|lowest|worst|weakest)(?:[ -]best)?\s+$",
    re.IGNORECASE,
)
_DOUBTED = re.compile(
    r"\b(?:doubt|not (?:say|think|believe|sure|certain|agree|claim|mean|confirm))\s+(?:(?:that|if|whether)\s+)?(?:(?:the|it|my)\s+)?"
    r"(?:(?:correct|right|best|final)\s+)?$",
    re.IGNORECASE,
)
_LONE = re.compile(r"(?<![^\W_])(?:[B-Zb-z]|[Aa](?![^\S\n]+[a-z]))(?![^\W_])")
_CHOOSE = re.compile(
    r"(?P<cue>\b(?:(?:i|we)(?:'ll|'d|\s+will|\s+would)?(?:\s+\w+){0,2}?\s+(?:choose|chose|pick|picked|select|selected|go with"
    r"|going with|go for|settle on|lean(?:ing)? towards?|say"
    r"|think|believe|answer|opt for"
    r"|vote for)(?:\s+(?:that\s+)?(?:it\s+is|the\s+answer\s+is))?"
    r"|(?:therefore|thus|hence|so|consequently|finally|in conclusion|overall|in summary)\b[,:]?(?:\s+(?:it is|i choose|the))?"
    r"|(?:change|changing|revise|revising|update|correct)\s+(?:my|the)\s+(?:answer|choice|response)\s+to|(?:switch|change)(?:ing)?\s+to"
    r"|(?:wait|actually|correction(?=\s*[:,.!\n-])|scratch that|on second thought"
    r"|i mean)\b[,.:!\s-]*(?:no\b[,.\s]*)?(?:it is|that is|should be"
    r"|make that)?"
    r"|(?:it|this)(?: is| must be| should be| has to be)|\bmust be|(?:correct|best|right) (?:answer|option|choice)|(?:choose"
    r"|select|pick|guess)(?:ing)?|left with|leaving|leaves(?: us with)?|going with|go for|settle on"
    r"|(?:most|more) (?:likely|probably))[\s,:]+)"
    r"(?:(?:the|only|definitely|clearly|probably|likely|simply|just)\s+)*(?:(?:correct |best |right )?"
    r"(?:options?|choices?|answers?|letters?)\b\s*[:#]?\s*)?[\s:=>*,\"'(\[{<«「-]{0,8}$",
    re.IGNORECASE,
)
_CHOOSES = hints(
    "choose chose pick select go going settle say think believe answer answers opt vote guess lean therefore thus hence so"
    " consequently finally conclusion overall summary change changing revise revising update correct switch wait actually scratch"
    " second mean it this must leaving left likely probably best right"
)
_CALLS_CORRECT = hints("correct right best better answer true more most")
_CALLS_TEXT = hints("most more likely best better correct closest nearest my only")
_IS_CORRECT = re.compile(
    r"[\"')\]}.:]*\s*(?:(?:is|are|would be|seems|appears to be|as)\s+(?:indeed |clearly |definitely |most likely |probably )?"
    r"(?:the\s+)?(?:\w+\s+){0,3}?"
    r"(?:correct|right(?!\s+(?!because|since|as|answer|option|choice|one|here|in this)\w)|best|answers?|true|(?:(?:more"
    r"|most) (?:likely|probable)|better(?:\s+(?:choice|option|answer|fit|match))?)"
    r"(?=\W*(?:$|[.,;:\n)]|than\b|given\b|because\b|since\b|here\b))|most likely|most appropriate|most accurate"
    r"|most suitable)\b|[-:–—]\s*(?:correct|true"
    r"|right(?![^\S\n]+\w))\b)",
    re.IGNORECASE,
)
_FAINT = re.compile(
    r"\b(?:not|incorrect|wrong|less|least|unlikely|false|poor|possible|potential|plausible|common|another|alternative)\b",
    re.IGNORECASE,
)
_CAPITAL = re.compile(rf"(?<![^\W_]){OPEN}([A-Z])(?![^\W_])(?P<close>{CLOSE})")
_REASON = re.compile(
    r"\W*(?:\((?:option |choice )?[A-Z]\)\W*)?"
    r"(?:although|though|but|while|whereas|however|rather|which|because|as|since|not|given|due|and not)\b|[.,;]",
    re.IGNORECASE,
)


def last_statement(text: str, count: int, texts: OptionTexts, multiple: bool) -> Found:
    """What the last answer statement names; () where that is more than one option without saying which."""
    best: tuple[int, Found] = (-1, None)
    for statements in (_after_cue, _chosen, _called, _text_called, _ordinal, _in_other_words):
        for place, found in statements(text, count, texts, multiple):
            if place >= best[0]:
                best = (place, found)
            break
    return best[1]


def _looked_at(text: str) -> int:
    """How many places, from the last on, are looked at for a statement of one kind."""
    return 8 + most(text) // 3


Statements = Iterator[tuple[int, tuple[int, ...]]]
"""Statements of one kind, the last first: where each begins and what it names."""


def _after_cue(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "the answer is B", "Answer: femur"."""
    if not says(text, _CUES):
        return
    lowered = text.lower()
    words = [word.start() for word in _CUE_WORD.finditer(lowered if len(lowered) == len(text) else text)]
    for start in reversed(words[-_looked_at(text) :]):
        cue = _CUE.match(text, start)
        if cue is None or not _is_cue(text, cue, multiple):
            continue
        if (found := _target(text, cue.end(), count, texts, multiple)) is not None:
            yield cue.start(), found


def _chosen(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "I choose C", "so, it is D"."""
    if not says(text, _CHOOSES):
        return
    for lone in reversed(list(_LONE.finditer(text))[-_looked_at(text) :]):
        place = max(0, lone.start() - 60)
        if (lone[0] == "I" and count < 9) or not says(text[place : lone.start()], _CHOOSES):
            continue
        cue = _CHOOSE.search(text[place : lone.start()])
        if cue is None or "not" in cue[0].split():
            continue
        start, end = place + cue.start(), place + cue.end("cue")
        if negated_before(text, start) or is_supposed(text, start) or _DOUBTED.search(text[max(0, start - 40) : start]):
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
    inner = texts.pattern.match(text, end + 1) if texts.pattern else None
    end = inner.end() if inner else end
    return _SAYS_OF_IT.match(text, end) is not None and _IS_CORRECT.match(text, end) is None


def _called(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "B is correct", "A and C are the right answers"."""
    if not says(text, _CALLS_CORRECT):
        return
    passed = 0
    found = []
    for head in list(_CAPITAL.finditer(text))[-_looked_at(text) :]:
        verdict = _called_correct(text, head, count, texts) if head.start() >= passed else None
        if verdict is not None:
            passed = verdict[1]
            found.append((head.start(), verdict[0]))
    yield from reversed(found)


def _text_called(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "sarcoidosis is the most likely diagnosis"."""
    if texts.pattern is None or multiple or not says(text, _CALLS_TEXT):
        return
    mentions = text_mentions(text, texts)
    for mention in reversed(mentions[-_looked_at(text) :]):
        option = mention.options[0]
        if len(mention.options) > 1 or mention.crossed or option in texts.common | texts.numeric:
            continue
        tail = _TEXT_IS_BEST.match(text, mention.end)
        if tail and not _denied_in_clause(text, mention.start) and not is_supposed(text, mention.start):
            yield mention.start, (option,)


def _ordinal(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """ "the second statement is correct", where no option is itself numbered."""
    if not says(text, _ORDINAL_WORDS) or any(word in _ORDINALS for words in texts.words for word in words):
        return
    for match in reversed(list(_ORDINAL.finditer(text))[-_looked_at(text) :]):
        place = _ORDINALS.get(match[1].lower(), count - 1)
        if place < count and not negated_before(text, match.start()) and not is_supposed(text, match.start()):
            yield match.start(), (place,)


_ORDINALS = {word: place for place, word in enumerate(("first", "second", "third", "fourth", "fifth"))}
_ORDINAL_WORDS = hints("first second third fourth fifth")
_ORDINAL = re.compile(
    r"\bthe (first|second|third|fourth|fifth) (?:statement|option|choice|description|sentence|caption|answer|one)"
    r" (?:is|seems|appears to be|would be) (?:clearly |most likely |indeed |probably )?(?:the )?(?:more |most )?"
    r"(?:correct|right|true|accurate|best|appropriate|likely)\b(?!\s+to\b)",
    re.IGNORECASE,
)
_TEXT_IS_BEST = re.compile(
    r"[\"')\]]*(?: \([A-Z]\))?(?:\s+(?:as\s+)?the (?:(?:most|only) (?:likely|probable|plausible|fitting|appropriate)|correct"
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
_OTHER_WORDS = re.compile(
    r"(?:(?:\b(?:richtig|korrekt) (?:ist|wäre)|\b(?:ich|je|yo) (?:wähle|nehme|choisis|elijo)|\b(?:elijo|escojo|scelgo|escolho|opto por)"
    r"|\bc'est|\b(?:opción|option|opção|opzione|réponse|respuesta) (?:correcta|correcte|correta|corretta) (?:es|est|é|è))"
    r"(?:\s+(?:la|le|die|der|das|a|o))?(?:\s+(?:option|antwort|réponse|opción|respuesta|opção|opzione))?\s*:?\s*|(?:选择|选|選|選擇"
    r"|应为|应该是|所以是)\s*(?:选项)?\s*)"
    rf"{OPEN}([A-Z])(?![^\W_])",
    re.IGNORECASE,
)
_IN_OTHER_WORDS = hints("richtig korrekt nehme choisis elijo escojo scelgo escolho opto est correta correcta corretta")


def _in_other_words(text: str, count: int, texts: OptionTexts, multiple: bool) -> Statements:
    """The same in German, Spanish, French, Italian, Portuguese and Chinese."""
    if not says(text, _IN_OTHER_WORDS):
        return
    found = _OTHER_WORDS.finditer(text)
    for match in sorted(found, key=lambda match: -match.start())[:20]:
        if LETTERS.index(match[1].upper()) < count and match[1].isupper():
            yield match.start(), (LETTERS.index(match[1]),)


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
    if " if " in cue["mid"].lower() or is_asked(text, cue.end()):
        return False
    plural = word in ("options", "choices", "letters") or link == "are"
    if _OTHERS.search(before) or (plural and (not multiple or word != "answers")):
        return False
    if _DOUBTED.search(before):
        return False
    return not is_supposed(text, cue.start())


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
    list_head = HEAD.match(text, head.start())
    places, end, _ = letter_list(text, list_head, count) if list_head else ([], head.end(), False)
    places, end = (places, end) if places else ([LETTERS.index(head[1])], head.end())
    tail = _IS_CORRECT.match(text, end)
    if tail is None and texts.pattern is not None and len(places) == 1:
        gap = LABEL_GAP.match(text, end)
        inner = texts.pattern.match(text, gap.end()) if gap else None
        if inner is not None and named_option(inner[0], texts) == places[0]:
            tail = _IS_CORRECT.match(text, inner.end())
    if tail is None or _FAINT.search(tail[0]) or is_supposed(text, head.start()):
        return None
    if _denied_in_clause(text, head.start()):
        return None
    return tuple(places), end


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
    if texts.pattern is None:
        return found
    if texts.numeric:
        line = text[start : min(len(text), start + 200)].split("\n", maxsplit=1)[0]
        for rest in (line, re.split(r"[.;,](?=\s|$)", line)[0]):
            formula = texts.exact.get(exact(rest))
            if formula is not None:
                return (formula,)
    while start < len(text) and text[start] in " \n\t\"'(":
        start += 1
    mentions = text_mentions(text, texts, start, min(sentence_end(text, start), start + 300))
    meant = [mention for mention in mentions if not is_denied(text, mention.start, mention.end)]
    options = tuple(dict.fromkeys(option for mention in meant for option in mention.options))
    if not options and found is None and len(letters_run(text, start, count) or ()) > 1:
        return ()  # "the answer is AD"
    if not options or multiple or len(options) == 1:
        return options or found
    first = meant[0]
    clear = len(first.options) == 1 and first.start - start < 25 and _REASON.match(text, first.end)
    return first.options if clear else ()


def agreeing(text: str, start: int, texts: OptionTexts, found: tuple[int, ...]) -> tuple[int, ...]:
    """`found`, unless the text of another option follows the letter ("B. <text of A>"): then nobody can say which is meant."""
    head = HEAD.match(text, start)
    if head is None or len(found) != 1 or texts.pattern is None:
        return found
    if _names_another(text, head.end(), found[0], len(texts.words)):
        return ()
    gap = LABEL_GAP.match(text, head.end())
    inner = texts.pattern.match(text, gap.end()) if gap and (gap[0].strip() or head["close"]) else None
    named = named_option(inner[0], texts) if inner else None
    if inner is None or named is None:
        return found
    if named != found[0]:
        return found if is_denied(text, inner.start(), inner.end()) else ()
    return found


_ANOTHER = re.compile(
    rf"[^.;:\n]{{0,60}}?[\s,]+(?:or|and)\s+(?:option\s+)?(?={OPEN}([A-Z])(?:{CLOSE}\s*[,.:)]|{CLOSED}))"
)


def _names_another(text: str, start: int, found: int, count: int) -> bool:
    """Whether the clause goes on to name a second option that it does not deny ("A) 1% or B) 2%", "B, stroke, and C, sepsis")."""
    more = _ANOTHER.match(text, start)
    if more is None or position(more[1], count) in (found, -1):
        return False
    head = HEAD.match(text, more.end())
    end = letter_list(text, head, count)[1] if head else more.end()
    return not is_denied(text, more.end(), end)
