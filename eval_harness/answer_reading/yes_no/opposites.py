"""What a declarative response says by an opposite: of a comparison ("X is smaller than Y" to "Is X larger than Y?"), of normal ("The heart
is of normal size" to "Is the heart enlarged?"), of one value out of several that exclude one another ("a CT scan" to "Is this an MRI?").

Every function takes a response that has been made plain and its question, and returns `yes`, `no` or None.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import chain

from eval_harness.answer_reading.options import stem
from eval_harness.answer_reading.words import beginnings, words_in
from eval_harness.answer_reading.words import says as says_word
from eval_harness.answer_reading.yes_no.asked import KNOWN, SIDES, asked_of, asks_what, content_of, without_image
from eval_harness.answer_reading.yes_no.exclusive import EXCLUSIVE, one_name
from eval_harness.answer_reading.yes_no.question import IT_IS_A, SHOWN, clauses_of, is_negation


def says(text: str, question: str) -> str | None:
    """What the sentences say that doubt nothing, empty for what may be either; None where two of them contradict one another."""
    of_organ, rules = _rules_for(question)
    if not rules:
        return None
    text = _HEART.sub("heart", text) if of_organ else text
    shown = says_word(text, SHOWN)
    found = {
        verdict
        for clause in clauses_of(text, question)
        for rule in rules
        if (verdict := rule(without_image(clause) if shown else clause, text)) is not None
    }
    return found.pop() if len(found) == 1 else None


@lru_cache(maxsize=4096)
def _rules_for(question: str) -> tuple[bool, tuple[Rule, ...]]:
    """Whether a question asks for the size of an organ ("cardiomegaly"), and the rules that it may be answered by."""
    asked = without_image(asked_of(question))
    if (organ := _ENLARGED.match(asked)) is not None:
        asked = f"Is the {_ORGANS[organ[1].lower()]} enlarged?"
    found = (prepare(asked) for prepare in (_compares, _judges, _excludes))
    return organ is not None, tuple(rule for rule in found if rule is not None)


_ORGANS = {"cardio": "heart", "hepato": "liver", "spleno": "spleen"}
_ENLARGED = re.compile(r".*\b(cardio|hepato|spleno)megaly\b", re.IGNORECASE)
_HEART = re.compile(r"\bcardiac(?: silhouette| size)?\b", re.IGNORECASE)


Rule = Callable[[str, str], str | None]
"""What a clause of a response (the second argument) says."""

_THAN = re.compile(
    r"(.*?)\b((?:(?:more|less|fewer|greater|higher|lower) )?[^\W\d_]+) than (.*)", re.IGNORECASE | re.DOTALL
)
_COMPARATIVES = tuple(
    tuple(frozenset(words.split()) for words in pair.split("|"))
    for pair in (
        "larger bigger greater higher more|smaller lower less lesser fewer", "brighter lighter|darker dimmer", "thicker denser|thinner",
        "longer taller|shorter", "older|younger", "wider broader|narrower", "better|worse", "closer nearer|farther further",
        "earlier|later", "stronger|weaker", "faster|slower", "heavier|lighter", "deeper|shallower", "warmer hotter|colder cooler",
    )
)  # fmt: skip
_ALIKE = re.compile(r"\b(?:the same|equal(?:ly)?|identical|as [^\W\d_]+ as)\b", re.IGNORECASE)
_BOTH = re.compile(r"(?:[^.]*?,)?\W*(?:both|the (?:two|three))\b", re.IGNORECASE)
_PRONOUN = re.compile(r"\W*(?:is|are|was|were|does|do|did)\b\W*(?:it|this|that|they|these|he|she)?\W*", re.IGNORECASE)


def _compares(asked: str) -> Rule | None:
    match = _THAN.match(_spaced(asked)) if "than" in asked.lower() else None
    if match is None:
        return _compares_alone(asked)
    than = match[2].lower()
    subject = frozenset(content_of(_PRONOUN.sub("", match[1], count=1))) - _SIDE
    other = frozenset(content_of(match[3])) - _SIDE
    of_two = " and " not in match[3]
    if not other or subject == other or than in ("rather", "other"):
        return None

    def rule(clause: str, text: str) -> str | None:
        if "than" not in clause.lower() or (said := _THAN.match(_spaced(clause))) is None:
            if (alone := _ENDS_MORE.fullmatch(clause)) is not None and of_two and not is_negation(clause):
                one = frozenset(content_of(alone[1])) - _SIDE
                same, opposite = _compared(alone[2].lower(), than)
                first, second = _is_meant(one, subject, other), _is_meant(one, other, subject)
                if (same or opposite) and first is not second and subject:
                    return "yes" if first is same else "no"
            if not subject or _ALIKE.search(clause) is None or is_negation(clause):
                return None
            things = subject | other if _BOTH.match(clause) is None else subject & other - SIDES
            return "no" if things and things.issubset(content_of(clause)) else None
        one, two, negated = frozenset(content_of(said[1])), frozenset(content_of(said[3])), is_negation(clause)
        same, opposite = _compared(said[2].lower(), than)
        if not (same or opposite):
            return None
        if subject <= one and _is_meant(two, other, subject) and not (not subject and other <= one):
            return ("no" if same else "") if negated else "yes" if same else "no"
        if subject and other <= one and _is_meant(two, subject, other):
            return "" if negated else "no" if same else "yes"
        return None

    return rule


_ENDS_MORE = re.compile(
    r"(.*?)\b((?:more|less) [^\W\d_]+|[^\W\d_]{3,}er|more|less|worse)\W*", re.IGNORECASE | re.DOTALL
)


def _compares_alone(asked: str) -> Rule | None:
    """Of questions that name no second thing ("Is the left side brighter?"): the comparative or its opposite, and nothing else."""
    match = _ENDS_MORE.fullmatch(asked)
    if match is None:
        return None
    subject, than = frozenset(content_of(_PRONOUN.sub("", match[1], count=1))), match[2].lower()

    def rule(clause: str, text: str) -> str | None:
        said = _ENDS_MORE.fullmatch(clause)
        if said is None or is_negation(clause) or not subject.issuperset(content_of(said[1])):
            return None
        same, opposite = _compared(said[2].lower(), than)
        return "yes" if same else "no" if opposite else None

    return rule


_NOUN_BETWEEN = re.compile(
    rf"\b({'|'.join(word for pair in _COMPARATIVES for words in pair for word in words)}) (\w+) than\b", re.IGNORECASE
)
"""A comparative and its noun ("a higher value than")."""


def _spaced(text: str) -> str:
    text = _NOUN_BETWEEN.sub(r"\2 \1 than", _LETTER_A.sub("letter_a", text))
    return text.replace("lessthan ", "less than ").replace("morethan ", "more than ")


def _is_meant(said: frozenset[str], thing: frozenset[str], other: frozenset[str]) -> bool:
    """Whether words name the one of two things, perhaps in short ("than the left")."""
    return thing <= said or (bool(said) and said <= thing and not said <= other)


_LETTER_A = re.compile(r"(?<=\w )A\b")
"""Within a sentence, no article ("the bar for A")."""
_SIDE = frozenset(content_of("side part one that those"))


def _compared(one: str, other: str) -> tuple[bool, bool]:
    """Whether two comparatives mean the same, and whether they are opposites."""
    (first, *of), (second, *same) = one.split(" "), other.split(" ")
    alike = first == second or any({first, second} <= words for pair in _COMPARATIVES for words in pair)
    opposed = any(first in words and second in others for pair in _COMPARATIVES for words, others in (pair, pair[::-1]))
    return of == same and alike, of == same and opposed and not alike


CHANGED = r"enlarged|dilated|widened|thickened|swollen|distended|elevated|increased|decreased|reduced"
CHANGED += r"|atherosclerotic|ectatic|tortuous|calcified|fractured|ruptured|collapsed|obstructed|stenotic|edematous|necrotic|blunted"
CHANGED += r"|hyperinflated|hyperexpanded|congested|perforated|cirrhotic"
CHANGED += r"|shrunken|atrophied|atrophic|hypertrophied|displaced|deviated|inflamed"
_NORMALLY = r"(?:un\s?remarkable|within (?:the )?normal (?:limits|range)|healthy)"
_MEASURES = "size|shape|caliber|calibre|contour|appearance|width|thickness|position"
_ABNORMALLY = r"abnormal\b|diseased|(?<!un)remarkable|outside (?:of )?(?:the )?normal (?:limits|range)"
_STATE = rf"(?P<normal>normal\b(?! variant| in (?!{_MEASURES}))|{_NORMALLY})|(?P<abnormal>{_ABNORMALLY})|(?P<changed>{CHANGED})"
_STATES = beginnings(f"normal un unremarkable within healthy abnormal diseased remarkable outside {CHANGED}")
"""Of these a clause needs one that calls something normal, abnormal or changed."""
_IN = (
    r"(?: in (?:size|shape|caliber|calibre|contour|appearance|width|thickness|position|signal|intensity|and|or|[, ])+)?"
)
_ASKS_STATE = re.compile(
    rf"\W*(?:is|are|was|were|does|do|did)\s+(?P<subject>.+?)\s+(?:(?:look|appear|seem)\s+)?(?:to be\s+)?(?:of )?(?:{_STATE}){_IN}"
    rf"(?: size)?(?:,? (?:and|or) (?:{CHANGED}))?\W*$",
    re.IGNORECASE,
)
_ASKS_WHOLE = re.compile(
    r"\W*(?:is (?:this|that|it) an? (?P<normal>normal|healthy)\b"
    r"|(?:is|are) there (?:any(?:thing)? |an? |something )?(?:\w+ )?(?P<abnormal>abnormal\w*)"
    r"|does [^?]{1,40}? (?:show|reveal|demonstrate|display|depict) an? (?P<normal2>normal|healthy) (?P<part>[\w-]+(?: [\w-]+)?)\W*$"
    r"|(?:does|do) [^?]{1,40}? (?:show|have|reveal|demonstrate|contain|display) (?:any |an? )?(?:\w+ )?(?P<abnormal2>abnormal\w*)"
    r"|(?:is|are) (?:an? |any )?(?P<abnormal3>abnormalit\w+) )",
    re.IGNORECASE,
)
_IS_STATE = re.compile(
    rf"(?P<subject>.*?)\b(?:is|are|was|were|appears?|looks?|seems?|remains?)\s+(?:to be\s+)?"
    rf"(?P<not>not\s+)?(?:(?:[^\W\d_]+ly|also|otherwise|all|considered|described as|found to be)\s+)?"
    rf"(?:of )?(?:an? )?(?:{_STATE})",
    re.IGNORECASE | re.DOTALL,
)
_SHOWS_ABNORMAL = re.compile(
    r"\b(?:there (?:is|are)|shows?|reveals?|demonstrates?|has|have|displays?|contains?)\b(?: (?!no\b|not\b)[\w-]+){0,4}? abnormal\w*",
    re.IGNORECASE,
)
_SHOWS_NORMAL = re.compile(
    r"\b(?:there (?:is|are)|shows?|reveals?|demonstrates?|displays?)\s+(?:an? )?normal (?!variant)([^.,;]+)",
    re.IGNORECASE,
)
_SHOWS = re.compile(
    r"\b(?:there (?:is|are)|shows?|reveals?|demonstrates?|has|have|displays?|suggests?|indicates?|(?:consistent )?with|of)\b",
    re.IGNORECASE,
)
_OTHERWISE = re.compile(r" in (?!size|caliber|calibre|width|thickness)\w+(?! and size)", re.IGNORECASE)
_THERE = re.compile(r"\W*there\W*", re.IGNORECASE)
_WHOLE = re.compile(
    r"\W*(?:it (?:appears|seems) that )?(?:(?:the|this|these|an?|your|provided|given|shown|chest|abdominal|brain|head"
    r"|ct|mr|mri|x-?ray|of|patient's|overall)\W+)*"
    r"(?:image|picture|x-?ray|radiograph|scan|film|study|ct|mri|it|appearance|findings|everything)s?\W*(?:shown |provided |above )?",
    re.IGNORECASE,
)
_SIZE = frozenset(content_of("size shape contour caliber calibre appearance silhouette position width thickness"))


def _judges(asked: str) -> Rule | None:
    """Of questions whether something is normal, abnormal, or changed in one way ("enlarged")."""
    whole = _ASKS_WHOLE.match(asked)
    state = None if whole else _ASKS_STATE.match(asked)
    if whole:
        groups = whole.groupdict()
        kind = "normal" if groups["normal"] or groups["normal2"] else "abnormal"
        where = _PLACE.search(asked)
        subject = frozenset(content_of(groups["part"] or (where[1] if where else "")))
    elif state:
        kind = "normal" if state["normal"] else "abnormal" if state["abnormal"] else "changed"
        subject = frozenset() if _WHOLE.fullmatch(state["subject"]) else frozenset(content_of(state["subject"])) - _SIZE
        if not subject and kind == "changed":
            return None
    else:
        return None
    changed = state["changed"].lower() if state and state["changed"] else ""

    def rule(clause: str, text: str) -> str | None:
        if not says_word(text, _STATES):
            return None
        said = _IS_STATE.match(clause)
        if said is None or _THERE.fullmatch(said["subject"]):
            shows = _SHOWS_ABNORMAL.search(clause)
            if (fine := _SHOWS_NORMAL.search(clause)) and not is_negation(clause):
                things = set(content_of(fine[1]))
                return ("yes" if kind == "normal" else "no") if subject and subject <= things else None
            if changed and (place := re.search(rf"(?<![\w-]){changed}\s", clause, re.IGNORECASE)):
                after = content_of(clause[place.end() :])[: len(subject) + 1]
                return (
                    ("no" if is_negation(clause) else "yes")
                    if subject <= set(after) and _SHOWS.search(clause)
                    else None
                )
            if shows and not is_negation(clause) and subject <= set(content_of(clause)) and kind != "changed":
                return "yes" if kind == "abnormal" else "no"
            return None
        own = frozenset(content_of(said["subject"]))
        normal, whole = bool(said["normal"]), _WHOLE.fullmatch(said["subject"]) is not None
        about = whole and normal and not said["not"]
        if is_negation(said["subject"]) or not (about or (subject <= own if subject else whole)):
            return None
        if said["not"]:
            if said["changed"] or kind == "changed":
                return "no" if changed and changed == (said["changed"] or "").lower() else None
            normal = not normal
        if own & SIDES - subject or (kind == "changed" and normal and _OTHERWISE.match(clause, said.end())):
            return None
        if kind == "changed":
            return "no" if normal else "yes" if changed == (said["changed"] or "").lower() else None
        return "yes" if normal == (kind == "normal") else "no"

    return rule


_PLACE = re.compile(
    r"\b(?:in|on|of|within) (?!(?:the |this |that )?(?:image|picture|scan|x-?ray|film|mri|ct|radiograph|study"
    r"|patient)s?\b)(?:the )?([\w-]+(?: [\w-]+)?)\W*$",
    re.IGNORECASE,
)

_IS = re.compile(r"\b(?:is|are|was|were|has|have|appears?|seems?|looks?|lies|located)\b", re.IGNORECASE)
_WORDS = re.compile(r"[^\W_]+")
_THINGS = content_of(
    "modality technique lesion tumor mass patient person section cut sequence plane procedure diagnosis condition type kind used"
)
"""What a sentence may call the thing that is asked about."""
_ALMOST = words_in(
    "almost nearly half partly partially mostly than near next beside behind above below adjacent close between"
)
_PLACES = frozenset(chain.from_iterable(EXCLUSIVE[:5]))
_FEW = words_in("in on at of the a an to side located part")


@lru_cache(maxsize=4)
def _words_said(text: str) -> frozenset[str]:
    return frozenset(_WORDS.findall(one_name(text).lower()))


def _excludes(asked: str) -> Rule | None:
    """Of questions what a thing is, or where, whose answer names another value that excludes the one asked for."""
    kind = asks_what(asked)
    if kind is None:
        return None
    words = _WORDS.findall(one_name(asked).lower())
    offered = [
        group for group in EXCLUSIVE if "or" in words and len({group[word] for word in words if word in group}) > 1
    ]
    values = [
        (at, word, group)
        for at, word in enumerate(words)
        for group in EXCLUSIVE
        if word in group and group not in offered  # "Is this a CT or an MRI?" has no answer yes or no
    ]
    own_stems = frozenset(map(stem, words))
    qualities = [
        (at, _prefixed(stem(word).rstrip("e")))
        for at, word in enumerate(words)
        if at > 1 and len(word) > 3 and word not in _FEW
    ]
    if not values and not qualities:
        return None
    known = KNOWN.union(_THINGS, content_of(asked))

    def says_another(clause: str, text: str) -> bool:
        plain = one_name(clause)
        verb = IT_IS_A.match(plain) if kind == "named" else _IS.search(plain)
        if verb is None or (kind == "named" and not known.issuperset(content_of(verb[0]))):
            return False
        before = frozenset(_WORDS.findall(plain[: verb.start()].lower()))
        after = _WORDS.findall(plain[verb.end() :].lower().replace("non-", "non"))[: 8 if kind == "named" else 12]
        for at, word, group in values:
            own = {name for name in group if group[name] == group[word]}
            other = next((place for place, name in enumerate(after) if name in group and name not in own), -1)
            if other < 0 or not _ALMOST.isdisjoint(after[:other]) or not own.isdisjoint(_words_said(text)):
                continue
            if kind == "named" and word in _PLACES and words[at + 1 : at + 2] != after[other + 1 : other + 2]:
                continue
            if kind != "named" and (at < 3 or not _said(words[1:at], before, after)):
                continue
            return True
        near = {word.rstrip("e") for word in set(map(stem, after[:4])) - own_stems}
        for at, opposites in qualities:
            if opposites.isdisjoint(near):
                continue
            rest = [*(words[1:at] if kind != "named" else []), *(word for word in words[at + 1 :] if len(word) > 3)]
            if not rest or _said(rest, before, after, kind):
                return True
        return False

    return lambda clause, text: "no" if says_another(clause, text) and not is_negation(clause) else None


def _prefixed(word: str) -> frozenset[str]:
    """A word with each prefix that denies it, and without the one that it has ("regular", "irregular")."""
    bare = (word.removeprefix(prefix) for prefix in _PREFIXES if word.startswith(prefix))
    longer = (prefix + word for prefix in _PREFIXES if len(word) > 2)
    return frozenset(chain(longer, (one for one in bare if len(one) > 2)))


_PREFIXES = words_in("a ab dis il im in ir non un")


def _said(subject: list[str], before: frozenset[str], after: list[str], kind: str = "copula") -> bool:
    """Whether words that a question asks about are said, the first of them before the verb."""
    wanted = [stem(word) for word in subject if word not in _FEW and len(word) > 1]
    first = set(map(stem, before))
    return bool(wanted) and (kind == "named" or wanted[0] in first) and first.union(map(stem, after)).issuperset(wanted)
