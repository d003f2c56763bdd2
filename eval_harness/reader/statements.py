"""Decide what is said of an option where it is named: stated as the answer, asserted, denied, or only supposed.

The sentence around a mention decides. Patterns are tried on text in lower case. Of several statements the last counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from eval_harness.reader.letters import ENDS, Found, letters_run
from eval_harness.reader.mentions import Mention, Response

_NEGATOR = re.compile(
    r"\b(?:no(?!\s*(?:[,:;.!–—]|-\s|wait|longer|doubt))|not(?!\s+only)|never|neither|nor|without|absence of"
    r"|absent|lacks?|lack of"
    r"|rul(?:es?|ed|ing) out|exclud\w+|eliminat\w+|rather than|instead of|unlike|as opposed to|other than|except"
    r"|apart from"
    r"|negative for|(?:less |least |un)likely|least (?:probable|consistent|appropriate)|(?:anything|everything|all) but"
    r"|(?:lowest|smallest) (?:likelihood|probability|chance)|(?:last|worst|second) choice|cross(?:ed|ing)? out"
    r"|(?<!no )(?<!a )doubt"
    r"|incorrect|wrong|mistake|denies|free of|against|inconsistent with|(?:other|remaining) (?:options?|choices?"
    r"|answers?)"
    r"|distractors?|differentiat\w*|distinguish\w*|mistaken for|would (?:show|have|need|require|present|appear"
    r"|be expected)"
    r"|(?:more|better|likelier)\b[^.;]{0,30}?\bthan\b(?! (?:\w+ )+(?:in|on|at) )"
    r"|nicht|weder|kein\w*|ohne|n'est pas|pas d[eu]?|aucune?|ningún|ninguna?)\b"
    r"|\bover\s+(?:option\s+)?$|\bthan\s+(?:(?:the|an?|in|on|at|option|region)\s+)*\W?$|[✗❌✘]\W*$|不[是选]|并非|排除|没有|无"
)
_VERDICT = (
    r"not|n't|incorrect|wrong|unlikely|ruled out|excluded|absent|inconsistent|less|inaccurate|unrelated"
    r"|inappropriate|impossible"
    r"|eliminated|rejected|dismissed|discarded|irrelevant|false|improbable|implausible|out|be considered|a mistake"
    r"|(?:the )?(?:lowest|weakest|worst|exception)"
)
_DENIED_AFTER = re.compile(
    rf"[\"')\]}}]*(?:(?!\b(?:is|are|was|were|and|but|or|because|since|while"
    rf"|whereas)\b)[^.;:\n,]){{0,40}}?\s*\b(?:is|are|was|were|can|could"
    rf"|may|would|does|do|did|has|have|seems?|appears?)\s+(?:\w+\s+){{0,2}}?(?:{_VERDICT})\b"
    rf"|[^()\n]{{0,60}}\)\s+(?:is|are|was|were)\s+(?:\w+\s+){{0,2}}?(?:{_VERDICT})\b"
    r"|\W{0,4}\bbut (?:this|that|it) (?:is|does|seems|appears)\s+(?:much |far |also )?(?:less|unlikely|not"
    r"|improbable)\b"
    r"|\s*,?\s*which (?:is|are|was|were) (?:\w+ly )?not\b|\s+would be (?:my|the) (?:last|least|worst|second)\b"
    r"|[^.;:\n,]{0,20}?\s*\bwould\s+(?:\w+ly\s+)?(?:show|have|appear|present|look|need|require|cause|produce"
    r"|shift|highlight|demonstrate"
    r"|reveal|stain|be(?!\s+(?:\w+ly\s+)?(?:the|my|best|most|correct|consistent|right)\b))\b"
    r"|[\"')\]}:]*\s*[-:–—(]?\s*not\b(?!\s+(?:option\s+)?\(?[a-z]\b\)?\s*(?:$|[.,;)]))"
    r"|[\"')\]}.:]*\s*[-:–—(]?\s*(?:incorrect|wrong|not (?:likely|correct|present|visible|seen|supported"
    r"|consistent|true|applicable)\b|false"
    r"|unlikely|absent\b"
    r"|not present|no\b(?!,)|ruled out|eliminated|excluded|✗|❌|✘|×)"
    r"|[^.;:\n,]{0,20}?\s*\bwould\s+(?:\w+\s+){0,4}?if\b(?!\s+(?:i|we|asked|forced)\b)"
    r"|\s*(?:kann nicht ausgeschlossen|ne peut (?:pas )?être exclu\w*|no (?:se )?puede (?:ser )?descarta\w*)\b"
    r"|\s*(?:(?:ist|est|es)\s+(?:falsch|nicht|fausse?|incorrecte?|incorrecta|falsa)|n'est pas|no es)\b"
    r"|\s*(?:不(?:正确|对|是|符合|可能|成立)|是?错|(?:可以?|被)?排除)"
)
_ASIDE = re.compile(
    r"\s*\((?!\s*[a-z]\s*\))[^()\n]+\)|\s*,\s*(?:which|who|whose)\b[^.;\n]{1,160}?,(?=\s*(?:does|do|is|are|was"
    r"|has|can|would)\b)"
)
_SUPPOSED = re.compile(
    r"\b(?:if|unless|whether(?![^.;\n]*[,:])|had it|were it)\b(?!\s+(?:i|we)\s+(?:had|have|must|were forced)"
    r"|\s+forced|\s+asked)"
    r"|^\W*(?:should|were) (?:the|this|that|there|it)\b|^\W*otherwise\s*[,:]|如果|假如|要是|\b(?:wenn"
    r"|falls)\b(?!\s+ich)|\bsofern\b"
    r"|\bsi (?:l[ae]s?|el|los|il|elle|on|hay|se)\b"
)
_IF_AFTER = re.compile(
    r"[\"')\]]*(?:\s+(?:is|would be|may be|might be|could be)\s+(?:the\s+)?(?:\w+\s+)?(?:correct|right|true|best"
    r"|answer|choice))?"
    r",?\s+(?:only |nur )?(?:(?:if|unless)\b(?!\s+(?:i|we|you|asked|forced)\b)|(?:wenn|falls|sofern)\b(?!\s+ich\b)"
    r"|si (?:l[ae]s?|el|los|il|elle|on|hay|se)\b)"
)
_PAST = re.compile(
    r"\b(?:initially|originally|at first|previously|earlier|first (?:thought|guess|impression|glance)|tempted"
    r"|(?:might|going to) (?:think|choose|say))\b(?:(?!\b(?:but|however|yet|now|though|although)\b)[^.;])*$"
)


def denied(said: Response, mention: Mention) -> bool:
    """Whether the clause denies what it names ("not A", "A is wrong", "unlike A")."""
    return denied_before(said, mention.start) or denied_after(said, mention.end)


def denied_before(said: Response, start: int) -> bool:
    return _NEGATOR.search(said.clause(start)) is not None


def denied_after(said: Response, end: int) -> bool:
    text = said.lowered
    if _DENIED_AFTER.match(text, end, end + 120):
        return True
    aside = _ASIDE.match(text, end, end + 300)  # "option A (smooth and brown) is incorrect"
    return aside is not None and _DENIED_AFTER.match(text, aside.end(), aside.end() + 120) is not None


def supposed(said: Response, start: int, end: int) -> bool:
    """Whether text[start:end] holds only under a condition ("if it were thin, A", "B, if it is thin"), is asked ("Is it B? Let us see."),
    or was a first thought ("I initially chose A")."""
    before = said.before(start)
    if _SUPPOSED.search(before) or _IF_AFTER.match(said.lowered, end, end + 120) or _PAST.search(before):
        return True
    return _asked(said, start, end) or said.lowered[end : end + 2].lstrip().startswith("吗")


def _asked(said: Response, start: int, end: int) -> bool:
    """Whether the sentence of text[start:end] is a question; not where a question mark is the end of an option."""
    stop = said.sentence(max(end - 1, start))[1]
    if not said.lowered[max(end, stop - 3) : stop].rstrip("\"') \n").endswith("?"):
        return False
    return said.lowered[end : end + 1] != "?" or not any(option.endswith("?") for option in said.options.plain)


def in_condition(said: Response, mention: Mention) -> bool:
    """Whether a mention is part of a condition that its sentence begins with ("If the pike died, ..."), or is asked."""
    return _IN_CONDITION.match(said.before(mention.start)) is not None or _asked(said, mention.start, mention.end)


_IN_CONDITION = re.compile(r"\W*(?:if|when|suppose|assuming|given|unless|wenn|falls|si)\b[^.,;:!?\n]*$")


# --- statements: "the answer is B", "I choose C", "B is correct" ---

_LINK = (
    r"(?:\b(?:is|are|was|would be|should be|must be|seems to be|appears to be|ist|lautet|est|es)\b|\b[èé](?!\w)|:"
    r"|=>|=|-+>|→|⇒|–|—|\s-\s"
    r"|[是为為はは은는】]|(?<=ans)\.|\n)"
)
_CUE = re.compile(
    r"(?:answers?|ans|options?|choices?|letters?|response|selection|conclusion|diagnosis|description"
    r"|classification|impression(?=\s*[:\n])"
    r"|respuesta|réponse|antwort|lösung|risposta|resposta|ответ|correct(?=\s*:)|final(?=\s*:)|答案|选项|正解"
    r"|정답)(?![^\W_\u3400-\u9fff])"
)
_CUE_LINK = re.compile(
    rf"[\"'*\]]*(?P<mid>[^.\n:=?!]{{0,120}}?)\s*(?P<link>{_LINK})[\"'\s]*(?:(?:(?:is|are|be)\b|:)\s*)*"
)
_OTHERS = re.compile(
    r"\b(?:all|other|another|each|every|any|least|(?<!only )(?<!last )remaining|wrong|incorrect|alternative"
    r"|possible|following|these|given"
    r"|available|provided|two|three|four|five|none of the)\b[^\w.\n!?;:,\"]+(?:\w+[^\w.\n!?;:,\"]+){0,2}$"
    r"|\b(?:last|second|third|lowest|worst|weakest|differential)(?:[ -]best)?\s+$"
)
_BEST = re.compile(r"\b(?:best|correct|right|final|(?:most|more) \w+)\s+$")
_GAP = re.compile(
    r"(?:[\s\"'(\[{<«「:=>*,-]|\b(?:the|only|definitely|clearly|most|more|likely|probably|probable|both|either"
    r"|indeed|simply|therefore|just"
    r"|correct|best|right|option|choice|answer|letter|options|choices|answers|letters)\b|选项)*"
)
_WHY = re.compile(
    r"\W*(?:\((?:option |choice )?[a-z]\)\W*)?(?:although|though|but|while|whereas|however|rather|which|because"
    r"|as|since|not|given|due)\b"
    r"|[.,;]"
)
_BOTH = re.compile(
    r"(?:\b(?:both|sowohl|à la fois)\b|(?<!por )(?<!lo )\btanto\b|既)(?:(?!\b(?:is|are|was|were|has|have"
    r"|shows?)\b)[^.;:,\n]){0,100}?$"
)


def last_statement(said: Response, start: int = 0) -> Found:
    """What the last answer statement after text[start] names; () for more than one option without saying which."""
    if not said.mentions and not said.multiple:
        return None
    best: tuple[int, Found] = (start - 1, None)
    for kind in (_after_cue, _chosen):
        place, found = next(kind(said), best)
        if place > best[0]:
            best = place, found
    called = list(_called(said))
    if not called or called[0][0] <= best[0]:
        return best[1]
    if said.multiple:
        return (
            tuple(dict.fromkeys(place for _, found in reversed(called) for place in found))
            if best[1] is None
            else called[0][1]
        )
    return called[0][1] if len({found for _, found in called}) == 1 else best[1] if best[1] is not None else ()


_MOST = 24
"""How many places, from the last on, are looked at for a statement of one kind."""


def _after_cue(said: Response) -> Iterator[tuple[int, Found]]:
    """ "the answer is B", "Answer: femur"; the last first."""
    cues = list(_CUE.finditer(said.lowered))
    for cue in reversed(cues[-_MOST:]):
        link = _CUE_LINK.match(said.lowered, cue.end())
        if link is not None and _opens_answer(said, cue, link) and (found := _target(said, link.end())) is not None:
            yield cue.start(), found


def _opens_answer(said: Response, cue: re.Match[str], link: re.Match[str]) -> bool:
    """Whether "answer ... is" opens an answer, and not "the other options are", "if the answer were", "Option B:"."""
    word, mid = cue[0], link["mid"]
    if cue.start() and said.lowered[cue.start() - 1].isalnum() and word.isascii():
        return False
    if link["link"] == "\n" and (mid.strip() or word not in ("answer", "ans", "response", "conclusion", "diagnosis")):
        return False
    if (word in ("option", "choice", "选项") and _LETTER_FIRST.match(mid)) or mid.strip().isdigit():
        return False  # "Option B: femur" is a label, "Answer 2: femur" one of several
    before = said.before(cue.start())
    if word in ("description", "classification", "options", "choices") and not _BEST.search(before):
        return False
    if (
        _OTHERS.search(before)
        or _NEGATED_MID.search(mid)
        or _SUPPOSED.search(before)
        or _NEGATOR.search(said.clause(cue.start()).rpartition(":")[2])
    ):
        return False
    return not _PAST.search(before) and not _PREVIOUS.search(before)


_PREVIOUS = re.compile(r"\b(?:earlier|previous|first|initial|original) $")
_LETTER_FIRST = re.compile(r"\W*[a-z](?![^\W_])")
_NEGATED_MID = re.compile(
    r"\b(?:not|no|n't|never|nicht|pas|depends|wrong|incorrect|unclear|if|whether|with|by|letter)\b|不|并非|错误"
)


def _target(said: Response, start: int) -> Found:
    """What is named right after text[start]: letters, else option texts in the same sentence."""
    stop = said.sentence(start)[1]
    if said.multiple and (run := letters_run(said.text, start, said.count)):
        return run
    named: list[Mention] = []
    for mention in said.mentions:
        if mention.end <= start or mention.start < start - 3:
            continue
        if mention.start > max(stop, start) or mention.start - start > 300:
            break
        begin = max(start, mention.start)
        direct = _GAP.fullmatch(said.lowered, start, begin) is not None
        if mention.letter and not direct and not mention.bracketed and not mention.text:
            continue
        if supposed(said, mention.start, mention.end):
            continue
        if mention.start == said.listed[0]:
            return None
        if said.multiple:
            if direct or (not denied_after(said, mention.end) and not _NEGATOR.search(said.lowered[start:begin])):
                named.append(mention)
                stop = max(stop, _list_end(said, mention))
            continue
        if direct and mention.letter:
            if not mention.text and _denied_here(said, mention):
                continue
            return () if mention.crossed or len(mention.options) > 1 else mention.options
        if (
            not _NEGATOR.search(said.lowered[start:begin])
            and not denied_after(said, mention.end)
            and not _BOTH.search(said.lowered[start:begin])
        ):
            named.append(mention)
    if not named:
        run = letters_run(said.text, start, said.count)
        return () if run is not None and len(run) > 1 else None
    if said.multiple:
        return tuple(dict.fromkeys(place for mention in named for place in mention.options))
    first = named[0]
    if len({mention.options for mention in named}) > 1 and not (
        first.start - start < 25 and _WHY.match(said.lowered, first.end)
    ):
        return ()
    return () if first.crossed or len(first.options) > 1 else first.options


def _denied_here(said: Response, mention: Mention) -> bool:
    """ "The answer is B. No, ..." denies nothing; "the answer is B - wrong" does."""
    return _WRONG_AFTER.match(said.lowered, mention.end) is not None


_WRONG_AFTER = re.compile(r"\W{1,4}(?:is )?(?:incorrect|wrong)\b")


def _list_end(said: Response, mention: Mention) -> int:
    """Where the list ends that goes on below a mention, one option a line."""
    end = said.sentence(mention.end)[1]
    while end < len(said.text):
        following = next((each for each in said.mentions if each.start >= end), None)
        if following is None or said.lowered[end : following.start].strip(" \n-•*.\"'(["):
            return end
        end = said.sentence(following.end)[1]
    return end


_CHOOSES = re.compile(
    r"(?:\b(?:i|we)(?:'ll|'d|\s+will|\s+would)?(?:\s+\w+){0,2}?\s+(?:choose|chose|pick|picked|select|selected"
    r"|go with|going with|go for"
    r"|settle on|lean(?:ing)? towards?|say|think|believe|answer|opt for|vote for)(?:\s+(?:that\s+)?(?:it\s+is"
    r"|the\s+answer\s+is))?"
    r"|\b(?:therefore|thus|hence|so|consequently|finally|in conclusion|overall|in summary)\b[,:]?(?:\s+(?:it is"
    r"|i choose|the))?"
    r"|\b(?:change|changing|revise|revising|update|correct)\s+(?:my|the)\s+(?:answer|choice|response)\s+to"
    r"|\b(?:switch|change)(?:ing)?\s+to"
    r"|\b(?:wait|actually|correction(?=\s*[:,.!\n-])|scratch that|on second thought|i mean)\b[,.:!\s-]*(?:no\b[,.\s]*)?"
    r"(?:it is|that is|should be|make that)?"
    r"|\b(?:it|this)(?: is| must be| should be| has to be)|\bmust be|\b(?:correct|best|right) (?:answer|option"
    r"|choice|[a-z]+(?: [a-z]+)? is)"
    r"|\b(?:choose|select|pick|guess)(?:ing)?|\bleft with|\bleaving|\bleaves(?: us with)?|\bgoing with|\bgo for"
    r"|\bsettle on"
    r"|\b(?:most|more) (?:likely|probably)|\b(?:matches|corresponds to|fits)(?: option)?"
    r"|\b(?:richtig|korrekt) (?:ist|wäre)|\b(?:ich|je|yo) (?:wähle|nehme|choisis|elijo)|\b(?:elijo|escojo|scelgo"
    r"|escolho|opto por)|\bc'est"
    r"|选择?|選擇?|应为|应该是|所以是|(?<![点不非])(?:为|是|等于))"
    r"[\s,:]*(?:(?:the|only|definitely|clearly|probably|likely|simply|just|la|le|die|der|das)\s+)*"
    r"(?:(?:correct |best |right )?(?:options?|choices?|answers?|letters?|antwort|réponse|opción|respuesta"
    r"|选项)\b\s*[:#]?\s*)?"
    r"[\s:=>*,\"'(\[{<«「-]{0,8}$"
)
_REASON = re.compile(r"\s+(?:because|since|as|is|are|based|given|due|not|rather|instead)\b")
_DOUBTED = re.compile(
    r"\b(?:doubt|not (?:say|think|believe|sure|certain|agree|claim|mean|confirm))\s+(?:(?:that|if"
    r"|whether)\s+)?(?:(?:the|it|my)\s+)?"
    r"(?:(?:correct|right|best|final)\s+)?$"
)
_CONNECTIVE = re.compile(r"(?:so|thus|therefore|hence|consequently|finally|overall)\W*")
_SAYS_OF_IT = re.compile(r"\s+(?:is|are|was|were|may|might|could|can)\b")


def _chosen(said: Response) -> Iterator[tuple[int, Found]]:
    """ "I choose C", "so, it is D"; the last first."""
    for mention in reversed([each for each in said.mentions if each.letter][-_MOST // 2 :]):
        if not mention.text and not mention.bracketed and not _ends_strictly(said, mention):
            continue
        cue = _CHOOSES.search(said.lowered, max(0, mention.start - 60), mention.start)
        if cue is None:
            continue
        if _NEGATOR.search(said.clause(cue.start())) or _DOUBTED.search(
            said.lowered, max(0, cue.start() - 40), cue.start()
        ):
            continue
        if (
            re.search(r"\bnot\b", cue[0])
            or supposed(said, mention.start, mention.end)
            or _SUPPOSED.search(said.before(cue.start()))
        ):
            continue
        if (
            _CONNECTIVE.fullmatch(cue[0])
            and _SAYS_OF_IT.match(said.lowered, mention.end)
            and not _IS_CORRECT.match(said.lowered, mention.end)
        ):
            continue  # "so (A) pain is possible" speaks of A
        if mention.options == (-1,) or mention.start == said.listed[0]:
            continue
        yield (
            cue.start(),
            ()
            if mention.crossed or (len(mention.options) > 1 and not said.multiple) or mention.either
            else mention.options,
        )


def _ends_strictly(said: Response, mention: Mention) -> bool:
    return ENDS.match(said.text, mention.end) is not None or _REASON.match(said.lowered, mention.end) is not None


_IS_CORRECT = re.compile(
    r"[\"')\]}.:]*\s*(?:(?:is|are|would be|seems|appears to be|as)\s+(?:indeed |clearly |definitely |most likely "
    r"|probably |therefore )?"
    r"(?:the\s+)?(?:\w+\s+){0,3}?(?:correct|right(?!\s+(?!because|since|as|answer|option|choice|one|here"
    r"|in this)\w)|best|answers?|true"
    r"|(?:(?:more|most) (?:likely|probable)|better(?:\s+(?:choice|option|answer|fit|match))?)"
    r"(?=\W*(?:$|[.,;:\n)]|than\b|given\b|because\b|since\b|here\b))|most (?:likely|appropriate|accurate|suitable"
    r"|fitting))\b"
    r"|[-:–—]\s*(?:correct|true|right(?![^\S\n]+\w))\b|ist (?:die |das )?(?:richtige?|korrekte?)\b|\s*[是为](?:正确"
    r"|最佳|最合适)的?(?:答案|选项|选择))"
)
_TEXT_IS_BEST = re.compile(
    r"[\"')\]]*(?!\s*\n)(?:\s+(?:as\s+)?the (?:(?:most|only) (?:likely|probable|plausible|fitting|appropriate)"
    r"|correct|best) \w+"
    r"|\s+(?:is|would be|remains) my \w+|\s+(?:(?:more|most) \w+ly|best|better) (?:\w+s\b(?<!ss))"
    r"|\s+(?:is|are|would be|appears to be)\s+(?:by far )?(?:the )?(?:most similar|most alike|closest|nearest)\b"
    r"|\s+(?:is|are|would be|seems|remains|appears to be)\s+(?:indeed |clearly |definitely |therefore "
    r"|thus )?(?:(?:by far )?the\s+)?"
    r"(?:(?:best|most \w+) (?:answer|option|choice|description)|(?:most|more) (?:likely|probable|consistent"
    r"|appropriate|accurate|plausible)"
    r"|correct (?:answer|option|choice|diagnosis)|best (?:answer|option|choice|explanation|fit|match|description))"
    r"(?!\s+(?:cause|complication|differential|mimic|than|to|in|with|when|if|among|after)\b))"
)
_FAINT = re.compile(
    r"\b(?:not|incorrect|wrong|less|least|unlikely|false|poor|possible|potential|plausible|common|another"
    r"|alternative)\b"
)
_NEW_CLAUSE = re.compile(r"(?<!neither)(?<!nor),\s*(?:option\s+)?\W?$")
"""What begins the clause of its own that calls a letter correct ("given the absence of fluid, C is more likely")."""


def _called(said: Response) -> Iterator[tuple[int, tuple[int, ...]]]:
    """ "B is correct", "A and C are the right answers", "sarcoidosis is the most likely diagnosis"; the last first."""
    for mention in reversed(said.mentions[-2 * _MOST :]):
        if mention.crossed or mention.options == (-1,) or -2 in mention.options:
            continue
        tail = _IS_CORRECT.match(said.lowered, mention.end) if mention.letter else None
        everyday = said.options.common | said.options.numeric
        by_text = mention.text and not said.multiple and len(mention.options) == 1
        if tail is None and by_text and everyday.isdisjoint(mention.options):
            tail = _TEXT_IS_BEST.match(said.lowered, mention.end)
        if tail is None or _FAINT.search(tail[0]) or supposed(said, mention.start, tail.end()):
            continue
        before = said.clause(mention.start)
        if (_NEGATOR.search(before) and not _NEW_CLAUSE.search(before)) or _BOTH.search(before):
            continue
        if len(mention.options) > 1 and not said.multiple:
            yield mention.start, ()
        else:
            yield mention.start, mention.options
