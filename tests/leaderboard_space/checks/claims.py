"""Reads the board's sentences back as claims, and holds each against numbers that did not come from the board.

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
NOUN = r"(models?|results?)( compared with chance)?"


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
    """Whether a shown number is the value, rounded; nothing but all and none is shown as 100.0 and 0.0 percent."""
    said = said.replace("−", "-").replace(",", "")
    if said.startswith((">", "<")):
        edge = float(said[1:])
        return (value > edge and value < 100) if said[0] == ">" else (0 < value < edge)
    assert said not in ("-0", "-0.0"), said
    digits = len(said.partition(".")[2])
    return abs(float(said) - value) <= 0.5 * 10**-digits + 1e-9


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
) -> None:
    """Raises AssertionError where the headline claims what the rows do not show. `up`: the first row has the highest value."""
    noun = ("model", "models") if models else ("result", "results")
    judged = [row for row in rows if row.verdict is not None]
    better, worse = (sum(row.verdict == verdict for row in judged) for verdict in ("better", "worse"))
    firsts = [row for row in rows if row.first == 1]

    def counted(found: re.Match[str]) -> None:
        """The noun, its number, and whether it says that some rows have no chance."""
        assert found["noun"] in noun, said
        assert bool(found["some"]) == (len(judged) < len(rows)), said

    def of_worse(found: re.Match[str]) -> None:
        if found["worse"] is None:
            assert worse == 0, said
        else:
            number = len(judged) if found["worse"] == "all" else whole(found["worse"])
            assert number == worse and (found["be"] == "is") == (worse == 1), said

    tail = rf"(?:; (?P<worse>all|{NUM}) (?P<be>is|are) significantly worse)?\."
    count = r"(?P<noun>models?|results?)(?P<some> compared with chance)?"
    guess = r"(?:guessing|flipping a coin(?: for each image)?|the paper's random run)"
    if not rows:
        if said == "No results for this selection.":
            assert not (baselines or uncounted or partial), said
        elif said == "Only baselines are known for these questions.":
            assert baselines and not uncounted, said
        elif of := re.fullmatch(
            r".+: only baselines have this score here; it is undefined for ([\d,]+) other results?\.", said
        ):
            assert baselines and whole(of[1]) == uncounted, said
        elif apart := re.fullmatch(
            rf"Nothing is ranked here: the {NUM} results? stands? apart, with the reason\.", said
        ):
            assert stand_apart == whole(apart[1]) and not (baselines or uncounted), said
            assert (" result stands " in said) == (stand_apart == 1), said
        elif said.endswith(": known for parts of this selection, not for all of it."):
            assert partial and not (baselines or uncounted), said
        else:
            assert (
                said.endswith(": no question of this selection counts towards it, or the answer key is hidden.")
                and uncounted
                and not baselines
            ), said
        return
    one = re.fullmatch(
        rf"(.+) (is significantly better than|is significantly worse than|is not significantly different from) {guess}\.",
        said,
    )
    if one and (one[1].startswith("The one ") or len(rows) == 1):
        assert len(judged) == 1, said
        assert one[1] == (rows[0].name if len(rows) == 1 else f"The one {noun[0]} compared with chance"), said
        word = {"is significantly better than": "better", "is significantly worse than": "worse"}.get(
            one[2], "no different"
        )
        assert judged[0].verdict == word, said
        return
    if found := re.fullmatch(rf"No {count} is significantly better than {guess}{tail}", said):
        counted(found)
        assert better == 0 and not found["noun"].endswith("s"), said
        return of_worse(found)
    if found := re.fullmatch(
        rf"(Both|All (?P<n>{NUM})) {count} are significantly better than {guess}(?P<lead>; .+)?\.", said
    ):
        counted(found)
        total = 2 if found[1] == "Both" else whole(found["n"])
        assert total == better == len(judged) and total > 1 and found["noun"].endswith("s"), said
        lead = found["lead"]
        if lead is None:
            assert found["some"], said
        elif lead in ("; any may hold rank 1", "; either may hold rank 1"):
            assert len(firsts) == len(rows) and ("either" in lead) == (len(rows) == 2), said
        elif alone := re.fullmatch(r"; (.+) alone holds rank 1", lead):
            assert [row.name for row in firsts] == [alone[1]], said
        else:
            several = re.fullmatch(rf"; {NUM} may hold rank 1", lead)
            assert several and 1 < whole(several[1]) == len(firsts) < len(rows), said
        return
    if found := re.fullmatch(
        rf"(?P<n>{NUM}) of (?P<m>{NUM}) {count} (?P<verb>is|are) significantly better than {guess}{tail}", said, re.I
    ):
        counted(found)
        assert whole(found["n"]) == better and whole(found["m"]) == len(judged) > 1 and found["noun"].endswith("s"), (
            said
        )
        assert (found["verb"] == "is") == (better == 1), said
        return of_worse(found)
    assert not judged or 2 * len(judged) < len(rows), f"chance is known, and the headline does not speak of it: {said}"
    best = (max if up else min)(row.value for row in rows)
    equal = [row for row in rows if abs(row.value - best) < 1e-9]
    if len(rows) == 1:
        found = re.fullmatch(rf"{re.escape(rows[0].name)}: .+ (\S+)\.", said)
        assert found and rounds_to(found[1], best), said
        return
    if found := re.fullmatch(rf"(Both|All {NUM}) {NOUN} have the same .+ \((\S+)\)\.", said):
        total = 2 if found[1] == "Both" else whole(found[2])
        assert total == len(equal) == len(rows) and found[3] == noun[1] and rounds_to(found[5], best), said
        return
    extreme = "highest" if up else "lowest"
    if found := re.fullmatch(rf"(.+) has the {extreme} .+ \((\S+)\) and alone holds rank 1\.", said):
        assert [row.name for row in equal] == [found[1]] == [row.name for row in firsts] and rounds_to(
            found[2], best
        ), said
        return
    found = re.fullmatch(
        rf"(.+) (has|share) the {extreme} .+ \((\S+)\)(?:; {NUM} (other|others) may be as good as (it|them))?\.",
        said,
    )
    assert found, f"no pattern for: {said}"
    assert rounds_to(found[3], best), said
    if found[2] == "has":
        assert [found[1]] == [row.name for row in equal] and found[6] in (None, "it"), said
    elif len(equal) == 2:
        one, other = (row.name for row in equal)  # in either order
        assert found[1] in (f"{one} and {other}", f"{other} and {one}") and found[6] in (None, "them"), said
    else:
        number, what = found[1].rsplit(" ", 1)
        assert whole(number) == len(equal) > 2 and what == noun[1] and found[6] in (None, "them"), said
    others = [row for row in firsts if row not in equal]
    assert (whole(found[4]) if found[4] else 0) == len(others), said
    assert not others or (found[5] == "other") == (len(others) == 1), said


def check_caption(
    said: str,
    *,
    sizes: set[tuple[int, int]],
    case: str,
    chances: set[float | None],
    bars: tuple[int, int],
    selected: bool,
    up: bool | None,
    drawn_chance: bool = False,
) -> None:
    """The sentences under the headline. `bars`: rows with an interval, rows with a score. `chances` rounded to six decimals."""
    for n, unit in re.findall(r"n = ([\d,]+) (\w+)\.", said):
        assert sizes == {(whole(n), whole(n))}, said
        assert unit == (case if whole(n) == 1 else case + "s"), said
    for n, cases, unit in re.findall(r"n = ([\d,]+) from ([\d,]+) (\w+)\.", said):
        assert sizes == {(whole(n), whole(cases))} and unit == (case if whole(cases) == 1 else case + "s"), said
    assert ("n = " in said) == (len(sizes) == 1 and (sizes != {(0, 0)} or "n = 0" in said)), said
    assert ("Everything selected." in said) == (not selected), said
    assert ("Lower is better." in said) == (up is False), said
    drawn, rows = bars
    chart = re.search(
        r"Dots are scores(, bars 95% intervals( where one is known)?)?(, the dashed line is .+?)?\.(?= |$)", said
    )
    assert bool(chart) == bool(rows), said
    if chart is None:
        return
    assert bool(chart[1]) == bool(drawn) and (not drawn or bool(chart[2]) == (drawn < rows)), said
    known = {chance for chance in chances if chance is not None}
    if not known:
        assert chart[3] is None, said
        return
    assert chart[3].endswith("where it is known") == (None in chances), said
    assert (", the dashed line is the paper's own random run" in chart[3]) == drawn_chance, said
    if drawn_chance:
        return
    if level := re.match(r", the dashed line is chance \((\S+)%\)", chart[3]):
        assert len(known) == 1 and rounds_to(level[1], next(iter(known))), said
    else:
        assert chart[3].startswith(", the dashed line is each row's chance") and len(known) > 1, said


SIGNS = {"▲": "better", "≈": "no different", "▼": "worse", "·": None}


def check_marks(legend: str, cells: Sequence[tuple[str, str | None, bool]]) -> None:
    """`cells`: the sign of each cell, its true verdict, whether few cases stand behind it. The legend explains the signs that are there,
    and no others."""
    for sign, verdict, _ in cells:
        assert sign in SIGNS and SIGNS[sign] == verdict, (sign, verdict)
    meaning = {
        "▲": "significantly better than guessing",
        "≈": "not significantly different from guessing",
        "▼": "significantly worse than guessing",
        "·": "not tested",
    }
    for sign, words in meaning.items():
        assert (f"{sign} {words}" in legend) == any(shown == sign for shown, _, _ in cells), (legend, sign)
    assert ("italic grey: fewer than 30 cases" in legend) == any(few for _, _, few in cells), legend
    assert "unmarked" not in legend


def check_trust(said: str, models: int, better: int, worse: int) -> None:
    """The first sentence of the board, by how many models were tested in its benchmark and how many marks each verdict has there."""
    one = re.fullmatch(
        r"The one model asked to .+ (is significantly better than|is significantly worse than|is not significantly different from) .+\.",
        said,
    )
    if one:
        assert models == 1 and ("better" in one[1]) == bool(better) and ("worse" in one[1]) == bool(worse), said
    elif found := re.fullmatch(rf"All {NUM} models asked to .+ are significantly better than .+\.", said):
        assert whole(found[1]) == models == better > 1, said
    else:
        found = re.fullmatch(
            rf"(Not yet\. )?Of {NUM} models asked to .+?, (none|{NUM}) (?:is|are) significantly better than [^;]+"
            rf"(?:; (all|{NUM}) (?:is|are) significantly worse)?\.",
            said,
        )
        assert found and whole(found[2]) == models > 1 and bool(found[1]) == (better == 0), said
        assert (0 if found[3] == "none" else whole(found[3])) == better, said
        assert (models if found[5] == "all" else whole(found[5]) if found[5] else 0) == worse, said


def check_model_verdicts(said: str, verdicts: Sequence[str | None]) -> None:
    """The first sentence of a model's page: every verdict that it names is one that a result of the model has."""
    if said == "This board has no ranked result of this model.":
        return
    words = {
        "significantly better than guessing on ": "better",
        "not significantly different from guessing on ": "no different",
        "significantly worse than guessing on ": "worse",
        "not tested on ": None,
    }
    assert said.endswith(".") and verdicts, said
    for part in said[:-1].split("; "):
        word = next((word for word in words if part.lower().startswith(word)), None)
        assert word is not None and words[word] in verdicts, (said, verdicts)


def check_behind(page: str, scores: list[Score]) -> None:
    """Every "95% interval a-b, n c, d cases" of a page is that of some score; one without an interval may be computed by the board."""
    for low, high, n, of, chance in re.findall(
        r"(?:95% interval ([\d.]+)–([\d.]+)|no interval), n ([\d,]+)(?: \(worth [\d,]+ independent\))?, ([\d,]+) cases?\b"
        r"(?:, chance (not known|[\d.]+))?",
        html.unescape(page),
    ):
        assert not low or float(low) <= float(high), (low, high)
        assert any(
            (score.n, score.n_cases) == (int(n.replace(",", "")), int(of.replace(",", "")))
            and (not low or score.low is None or (rounds_to(low, score.low) and rounds_to(high, score.high or 0.0)))
            and (bool(low) or score.low is None)
            and (not chance or (chance == "not known") == (score.chance is None))
            and (score.chance is None or not chance or chance == "not known" or rounds_to(chance, score.chance))
            for score in scores
        ), (low, high, n, of, chance)
