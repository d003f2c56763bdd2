"""Read the board's sentences back as claims, and check each against numbers that did not come from the board.

Every sentence has to fit one pattern here, and the claims of that pattern have to follow from the truth; one that fits none is an error:
who writes a new sentence writes down here what it claims.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.records.result import Score


def plain(fragment: str) -> str:
    """HTML as the text a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", fragment)).strip()


def check_words(page: str) -> str:
    """The page; raises AssertionError where it says a value of Python that means nothing to a reader."""
    found = re.search(r"[^<>]{0,60}(?:[,;(] |title=\")(?:None|nan|inf|True|False)\b[^<>]{0,20}", html.unescape(page))
    assert found is None, found[0]
    return page


NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
NUM = rf"({'|'.join(NUMBERS)}|[\d,]+)"


@dataclass(frozen=True)
class Truth:
    """One ranked row as it really is: `first` is the place the table shows for it."""

    name: str
    value: float
    verdict: str | None
    first: int


def whole(said: str) -> int:
    """A number as the board writes it, in words or digits."""
    said = said.lower()
    return NUMBERS.index(said) if said in NUMBERS else int(said.replace(",", ""))


def rounds_to(said: str, value: float) -> bool:
    """True if a shown number is the value, rounded; nothing but all and none is shown as 100.0 and 0.0 percent."""
    said = said.replace("−", "-").replace(",", "")
    if said.startswith((">", "<")):
        edge = float(said[1:])
        return (value > edge and value < 100) if said[0] == ">" else (0 < value < edge)
    assert said not in ("-0", "-0.0"), said
    digits = len(said.partition(".")[2])
    return abs(float(said) - value) <= 0.5 * 10**-digits + 1e-9


GUESS = r"(?:guessing|flipping a coin(?: for each image)?|the paper's random run)"
LEAD = re.compile(
    r"(?P<who>.+?) scores? (?:(?P<end>highest|lowest) \((?P<value>[^)]+)\)(?:; (?P<rivals>.+?) may be as good)?|(?P<same>[\d.,<>%]+))"
    r"\.(?: (?P<guess>.+))?"
)


def check_headline(
    said: str,
    rows: Sequence[Truth],
    *,
    baselines: int,
    uncounted: int,
    partial: int,
    up: bool,
    models: bool,
    stand_apart: int = 0,
    small: int = 0,
) -> None:
    """Raises AssertionError where the headline (without what it is about) claims what the rows do not show: who has the best score, who
    else may be the best, how many beat guessing. `up`: the first row has the highest value."""
    if not rows:
        why = {
            "No results for this selection.": not (baselines or uncounted or partial),
            "Only baselines have this score here.": baselines,
            "Known for parts of this selection, not for all of it.": partial and not (baselines or uncounted),
            "The answer key of these questions is hidden, or none of them counts towards this score.": uncounted
            and not baselines,
        }
        if few := re.fullmatch(r"Too few independent [a-z]+ to compare the ([\d,]+) models? here\.", said):
            assert whole(few[1]) == small > 0, said
            return
        apart = re.fullmatch(r"Nothing is ranked here: ([\d,]+) results? below, with the reason\.", said)
        assert (whole(apart[1]) == stand_apart and not (baselines or uncounted)) if apart else why[said], said
        return
    many = "models" if models else "results"
    best = (max if up else min)(row.value for row in rows)
    equal = [row for row in rows if abs(row.value - best) < 1e-9]
    found = LEAD.fullmatch(said)
    assert found, f"no pattern for: {said}"
    if found["same"]:
        assert len(equal) == len(rows) and rounds_to(found["same"].removesuffix("%"), best), said
        who = {1: rows[0].name, 2: f"Both {many}"}.get(len(rows))
        assert found["who"] == who or re.fullmatch(rf"All {NUM} {many}", found["who"]), said
    else:
        assert found["end"] == ("highest" if up else "lowest") and rounds_to(found["value"].removesuffix("%"), best), (
            said
        )
        assert _names(found["who"], equal, many), said
        rivals = [row for row in rows if row.first == 1 and row not in equal]
        assert bool(found["rivals"]) == bool(rivals) and (not rivals or _names(found["rivals"], rivals, "others")), said
    _check_guessing(said, found["guess"], rows, many)


def _names(said: str, rows: Sequence[Truth], many: str) -> bool:
    """True if a part of a sentence names these rows and no others, or says how many they are."""
    if of := re.fullmatch(rf"{NUM} {many}", said, re.I):
        return whole(of[1]) == len(rows) > 3
    rest = said
    for row in sorted(rows, key=lambda row: -len(row.name)):
        before, _, after = rest.partition(row.name)
        if before == rest:
            return False
        rest = before + after
    return re.fullmatch(r"(, )*( and )?", rest) is not None


def _check_guessing(said: str, tail: str | None, rows: Sequence[Truth], many: str) -> None:
    judged = [row.verdict for row in rows if row.verdict is not None]
    better, worse = judged.count("better"), judged.count("worse")
    if 2 * len(judged) < len(rows):
        assert tail is None, said
    elif len(judged) == 1:
        word = {"better": "It beats", "worse": "It does worse than"}.get(str(judged[0]), "It does not beat")
        assert tail and re.fullmatch(rf"{word} {GUESS}\.", tail), said
    elif better == len(judged):
        assert tail and re.fullmatch(rf"{'Both' if better == 2 else 'All'} beat {GUESS}\.", tail), said
    else:
        found = re.fullmatch(
            rf"(?:(?P<n>{NUM}) of (?P<m>{NUM}) {many} beats?|(?P<no>None|Neither) beats) {GUESS}"
            rf"(?:; (?P<worse>all|{NUM}) do(?:es)? worse)?\.",
            tail or "",
            re.I,
        )
        assert found, said
        assert (0 if found["no"] else whole(found["n"])) == better and (
            found["no"] or whole(found["m"]) == len(judged)
        ), said
        of = found["worse"]
        assert (len(judged) if of == "all" else whole(of) if of else 0) == worse, said


def check_caption(said: str, scores: Sequence[Score], case: str, selected: bool, up: bool | None) -> None:
    """The sentences under the headline. `scores`: of all rows with a value."""
    sizes = {(score.n, score.n_cases) for score in scores}
    for n, cases, unit in re.findall(r"n = ([\d,]+)(?: from ([\d,]+))? (\w+)\.", said):
        assert sizes == {(whole(n), whole(cases or n))}, said
        assert unit == (case if whole(cases or n) == 1 else case + "s"), said
    assert ("n = " in said) == (len(sizes) == 1 and (sizes != {(0, 0)} or "n = 0" in said)), said
    assert (" Only " in said) == selected and ("Lower is better." in said) == (up is False), said
    chart = re.search(
        r"Dots: scores(; bars: 95% intervals)?( where known)?(?:; dashed(?: where known)?: (.+?))?\.(?= |$)", said
    )
    assert bool(chart) == bool(scores), said
    if chart is None:
        return
    drawn = sum(score.low is not None for score in scores)
    assert bool(chart[1]) == bool(drawn) and (not drawn or bool(chart[2]) == (drawn < len(scores))), said
    levels = {round(score.chance, 6) for score in scores if score.chance is not None}
    if level := re.fullmatch(r"guessing \((\S+)%\)", chart[3] or ""):
        assert len(levels) == 1 and rounds_to(level[1], next(iter(levels))), said
    else:
        assert chart[3] == ("guessing, which differs by row" if levels else None), said


SIGNS = {"▲": "better", "≈": "no different", "▼": "worse", "·": None}


def check_trust(said: str, models: int, better: int, worse: int) -> None:
    """The first sentence of the board, by how many models were tested in its benchmark and how many marks each verdict has there."""
    if one := re.fullmatch(rf"The one model asked to .+ (beats|does worse than|does not beat) {GUESS}\.", said):
        assert models == 1 and (one[1] == "beats") == bool(better) and ("worse" in one[1]) == bool(worse), said
    elif found := re.fullmatch(rf"All {NUM} models asked to .+ beat {GUESS}\.", said):
        assert whole(found[1]) == models == better > 1, said
    else:
        found = re.fullmatch(
            rf"(Not yet\. )?Of {NUM} models asked to .+?, (none|{NUM}) beats? {GUESS}(?:; (all|{NUM}) do(?:es)? worse)?\.",
            said,
        )
        assert found and whole(found[2]) == models > 1 and bool(found[1]) == (better == 0), said
        assert (0 if found[3] == "none" else whole(found[3])) == better, said
        assert (models if found[5] == "all" else whole(found[5]) if found[5] else 0) == worse, said


def check_model_verdicts(said: str, name: str, verdicts: Sequence[str | None]) -> None:
    """The first sentence of a model's page: every verdict that it names is one that a result of the model has."""
    if said == f"This board has no ranked result of {name}.":
        return
    words = {
        "beats guessing on ": "better",
        "does no better than guessing on ": "no different",
        "does worse than guessing on ": "worse",
        "is not tested on ": None,
    }
    assert said.startswith(f"{name} ") and verdicts, said
    for part in said.removeprefix(f"{name} ").partition(". Weakest: ")[0].split("; "):
        word = next((word for word in words if part.startswith(word)), None)
        assert word is not None and words[word] in verdicts, (said, verdicts)
