"""Parse the board's sentences into claims, and check each against numbers that did not come from
the board.

Every sentence has to match a pattern here, and the claims of that pattern have to follow from the
truth; a sentence without a pattern is an error, so a new sentence needs a pattern for what it
claims.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

from eval_harness.records.result import Score


def plain(fragment: str) -> str:
    """Return HTML as the text that a reader sees."""
    return html.unescape(re.sub(r"<[^>]*>", "", fragment)).strip()


def check_words(page: str) -> str:
    """Return the page; raise AssertionError if it contains a Python value that means nothing to a
    reader.
    """
    match = re.search(r"[^<>]{0,60}(?:[,;(] |title=\")(?:None|nan|inf|True|False)\b[^<>]{0,20}", html.unescape(page))
    assert match is None, match[0]
    return page


NUMBER_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
NUM = rf"({'|'.join(NUMBER_WORDS)}|[\d,]+)"


@dataclass(frozen=True)
class Truth:
    """One ranked row with its true values; `first` is the rank that the table shows for it."""

    name: str
    value: float
    verdict: str | None
    first: int


def whole(number_text: str) -> int:
    """Parse a number as the board writes it, in words or digits."""
    number_text = number_text.lower()
    return NUMBER_WORDS.index(number_text) if number_text in NUMBER_WORDS else int(number_text.replace(",", ""))


def rounds_to(number_text: str, value: float) -> bool:
    """Return True if a displayed number is the rounded value; only all and none may be displayed as
    100.0 and 0.0 percent.
    """
    number_text = number_text.replace("−", "-").replace(",", "")
    if number_text.startswith((">", "<")):
        edge = float(number_text[1:])
        return (value > edge and value < 100) if number_text[0] == ">" else (0 < value < edge)
    assert number_text not in ("-0", "-0.0"), number_text
    digits = len(number_text.partition(".")[2])
    return abs(float(number_text) - value) <= 0.5 * 10**-digits + 1e-9


GUESS = r"(?:guessing|flipping a coin(?: for each image)?|the paper's random run)"
LEAD = re.compile(
    r"(?P<who>.+?) scores? (?:(?P<end>highest|lowest) \((?P<value>[^)]+)\)(?:; (?P<rivals>.+?) may be as good)?|(?P<same>[\d.,<>%]+))"
    r"\.(?: (?P<guess>.+))?"
)


def check_headline(
    sentence: str,
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
    """Check the headline (without its topic) against the rows: who has the best score, who else may
    be the best, how many beat guessing.

    `up`: the first row has the highest value. Raises AssertionError.
    """
    if not rows:
        why = {
            "No results for this selection.": not (baselines or uncounted or partial),
            "Only baselines have this score here.": baselines,
            "Known for parts of this selection, not for all of it.": partial and not (baselines or uncounted),
            "The answer key of these questions is hidden, or none of them counts towards this score.": uncounted
            and not baselines,
        }
        if few := re.fullmatch(r"Too few independent [a-z]+ to compare the ([\d,]+) models? here\.", sentence):
            assert whole(few[1]) == small > 0, sentence
            return
        unranked = re.fullmatch(r"Nothing is ranked here: ([\d,]+) results? below, with the reason\.", sentence)
        assert (whole(unranked[1]) == stand_apart and not (baselines or uncounted)) if unranked else why[sentence], (
            sentence
        )
        return
    many = "models" if models else "results"
    best = (max if up else min)(row.value for row in rows)
    equal = [row for row in rows if abs(row.value - best) < 1e-9]
    lead = LEAD.fullmatch(sentence)
    assert lead, f"no pattern for: {sentence}"
    if lead["same"]:
        assert len(equal) == len(rows) and rounds_to(lead["same"].removesuffix("%"), best), sentence
        subjects = {1: rows[0].name, 2: f"Both {many}"}.get(len(rows))
        assert lead["who"] == subjects or re.fullmatch(rf"All {NUM} {many}", lead["who"]), sentence
    else:
        assert lead["end"] == ("highest" if up else "lowest") and rounds_to(lead["value"].removesuffix("%"), best), (
            sentence
        )
        assert _names(lead["who"], equal, many), sentence
        rivals = [row for row in rows if row.first == 1 and row not in equal]
        assert bool(lead["rivals"]) == bool(rivals) and (not rivals or _names(lead["rivals"], rivals, "others")), (
            sentence
        )
    _check_guessing(sentence, lead["guess"], rows, many)


def _names(text: str, rows: Sequence[Truth], many: str) -> bool:
    """Return True if a part of a sentence names exactly these rows, or states their number."""
    if count_match := re.fullmatch(rf"{NUM} {many}", text, re.I):
        return whole(count_match[1]) == len(rows) > 3
    remaining = text
    for row in sorted(rows, key=lambda row: -len(row.name)):
        prefix, _, suffix = remaining.partition(row.name)
        if prefix == remaining:
            return False
        remaining = prefix + suffix
    return re.fullmatch(r"(, )*( and )?", remaining) is not None


def _check_guessing(sentence: str, tail: str | None, rows: Sequence[Truth], many: str) -> None:
    judged = [row.verdict for row in rows if row.verdict is not None]
    better, worse = judged.count("better"), judged.count("worse")
    if 2 * len(judged) < len(rows):
        assert tail is None, sentence
    elif len(judged) == 1:
        word = {"better": "It beats", "worse": "It does worse than"}.get(str(judged[0]), "It does not beat")
        assert tail and re.fullmatch(rf"{word} {GUESS}\.", tail), sentence
    elif better == len(judged):
        assert tail and re.fullmatch(rf"{'Both' if better == 2 else 'All'} beat {GUESS}\.", tail), sentence
    else:
        match = re.fullmatch(
            rf"(?:(?P<n>{NUM}) of (?P<m>{NUM}) {many} beats?|(?P<no>None|Neither) beats) {GUESS}"
            rf"(?:; (?P<worse>all|{NUM}) do(?:es)? worse)?\.",
            tail or "",
            re.I,
        )
        assert match, sentence
        assert (0 if match["no"] else whole(match["n"])) == better and (
            match["no"] or whole(match["m"]) == len(judged)
        ), sentence
        worse_count = match["worse"]
        assert (len(judged) if worse_count == "all" else whole(worse_count) if worse_count else 0) == worse, sentence


def check_caption(caption: str, scores: Sequence[Score], case: str, selected: bool, up: bool | None) -> None:
    """Check the sentences under the headline. `scores`: of all rows with a value."""
    sizes = {(score.n, score.n_cases) for score in scores}
    for n, cases, unit in re.findall(r"n = ([\d,]+)(?: from ([\d,]+))? (\w+)\.", caption):
        assert sizes == {(whole(n), whole(cases or n))}, caption
        assert unit == (case if whole(cases or n) == 1 else case + "s"), caption
    assert ("n = " in caption) == (len(sizes) == 1 and (sizes != {(0, 0)} or "n = 0" in caption)), caption
    assert (" Only " in caption) == selected and ("Lower is better." in caption) == (up is False), caption
    chart = re.search(
        r"Dots: scores(; bars: 95% intervals)?( where known)?(?:; dashed(?: where known)?: (.+?))?\.(?= |$)", caption
    )
    assert bool(chart) == bool(scores), caption
    if chart is None:
        return
    with_interval = sum(score.low is not None for score in scores)
    assert bool(chart[1]) == bool(with_interval) and (
        not with_interval or bool(chart[2]) == (with_interval < len(scores))
    ), caption
    levels = {round(score.chance, 6) for score in scores if score.chance is not None}
    if level := re.fullmatch(r"guessing \((\S+)%\)", chart[3] or ""):
        assert len(levels) == 1 and rounds_to(level[1], next(iter(levels))), caption
    else:
        assert chart[3] == ("guessing, which differs by row" if levels else None), caption


SIGNS = {"▲": "better", "≈": "no different", "▼": "worse", "·": None}


def check_trust(headline: str, models: int, better: int, worse: int) -> None:
    """Check the board's first sentence against the number of models tested on its benchmark, and
    the number of marks per verdict.
    """
    if single_model := re.fullmatch(
        rf"The one model asked to .+ (beats|does worse than|does not beat) {GUESS}\.", headline
    ):
        assert (
            models == 1 and (single_model[1] == "beats") == bool(better) and ("worse" in single_model[1]) == bool(worse)
        ), headline
    elif all_models := re.fullmatch(rf"All {NUM} models asked to .+ beat {GUESS}\.", headline):
        assert whole(all_models[1]) == models == better > 1, headline
    else:
        all_models = re.fullmatch(
            rf"(Not yet\. )?Of {NUM} models asked to .+?, (none|{NUM}) beats? {GUESS}(?:; (all|{NUM}) do(?:es)? worse)?\.",
            headline,
        )
        assert all_models and whole(all_models[2]) == models > 1 and bool(all_models[1]) == (better == 0), headline
        assert (0 if all_models[3] == "none" else whole(all_models[3])) == better, headline
        assert (models if all_models[5] == "all" else whole(all_models[5]) if all_models[5] else 0) == worse, headline


def check_model_verdicts(headline: str, name: str, verdicts: Sequence[str | None]) -> None:
    """Check the first sentence of a model's page: every verdict that it names is that of one of the
    model's results.
    """
    if headline == f"This board has no ranked result of {name}.":
        return
    words = {
        "beats guessing on ": "better",
        "does no better than guessing on ": "no different",
        "does worse than guessing on ": "worse",
        "is not tested on ": None,
    }
    assert headline.startswith(f"{name} ") and verdicts, headline
    for part in headline.removeprefix(f"{name} ").partition(". Weakest: ")[0].split("; "):
        word = next((word for word in words if part.startswith(word)), None)
        assert word is not None and words[word] in verdicts, (headline, verdicts)
