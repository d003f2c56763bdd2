"""Every sentence that the board computes, over generated numbers: what it claims follows from them (see `claims.py`)."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_harness.records.result import Score
from eval_harness.scores.sight import Sight
from leaderboard_space import sentences
from leaderboard_space.html import number, percent
from leaderboard_space.sentences import Caption, HeadlineFacts, Ranked
from tests.leaderboard_space.checks.claims import Truth, check_caption, check_headline, check_trust, rounds_to

# What differs by less than 1e-9 counts as equal: no value lies on that edge.
VALUES = st.one_of(
    st.sampled_from([0.0, 100.0, 25.0, 29.55, 29.545454545, 99.97, 0.01, 50.0, 33.3333333333]),
    st.floats(0, 100).map(lambda value: round(value, 6)),
)
VERDICTS = st.sampled_from(["better", "no different", "worse", None])


@st.composite
def findings(draw: st.DrawFn, untested: bool = False) -> tuple[HeadlineFacts, list[Truth]]:
    """`untested`: chance is known of none, so that the headline is about who has the highest score; few values, so that some are equal."""
    size = draw(st.one_of(st.integers(0, 6), st.sampled_from([13, 60])))
    pool = draw(st.lists(VALUES, min_size=1, max_size=3)) if untested or draw(st.booleans()) else None  # ties
    verdicts = (
        st.none()
        if untested
        else draw(
            st.sampled_from([VERDICTS, st.just("better"), st.just(None), st.sampled_from(["worse", "no different"])])
        )
    )
    values = [draw(st.sampled_from(pool) if pool else VALUES) for _ in range(size)]
    up = draw(st.booleans())
    values.sort(reverse=up)
    tied = draw(st.integers(1, max(size, 1)))
    rows = []
    for at, value in enumerate(values):  # of equal scores none is worse than the other
        first = 1 if at < tied or abs(value - values[0]) < 1e-9 else at + 1
        rows.append(Truth(f"Model {at}", value, draw(verdicts), first))
    found = HeadlineFacts(
        about="",
        guess=draw(st.sampled_from(["guessing", "flipping a coin", "flipping a coin for each image"])),
        ranked=tuple(Ranked(row.name, row.value, row.verdict, row.first) for row in rows),  # type: ignore[arg-type]
        are_models=draw(st.booleans()),
        higher=up,
        baselines=draw(st.integers(0, 2)),
        uncounted=draw(st.integers(0, 2)),
        partial=draw(st.integers(0, 2)),
        apart=draw(st.integers(0, 2)),
    )
    return found, rows


@given(st.one_of(findings(), findings(untested=True)))
def test_a_headline_claims_what_its_numbers_show(drawn: tuple[HeadlineFacts, list[Truth]]) -> None:
    found, rows = drawn
    check_headline(
        sentences.headline(found), rows, baselines=found.baselines, uncounted=found.uncounted, partial=found.partial,
        up=found.higher, models=found.are_models, stand_apart=found.apart,
    )  # fmt: skip


@given(
    sizes=st.frozensets(st.tuples(st.integers(0, 2000), st.integers(0, 3)), max_size=2),
    chances=st.frozensets(st.sampled_from([25.0, 22.760196, 0.04, 50.0, None]), max_size=3),
    rows=st.integers(0, 5),
    bars=st.integers(0, 5),
    where=st.sampled_from([(), ("Cerebral",), ("chest > CT", "brain")]),
    lower=st.booleans(),
)
def test_a_caption_claims_what_its_numbers_show(sizes, chances, rows, bars, where, lower) -> None:  # type: ignore[no-untyped-def]
    sizes = frozenset((max(n, cases), cases) for n, cases in sizes)
    bars = min(bars, rows)
    said = sentences.caption(
        Caption("Set accuracy", "Pairs with both images right.", "pair", sizes, where, (), chances, rows, bars, lower)
    )
    if any(cases == 0 for _, cases in sizes):  # how many cases stand behind it is not known, and not said
        assert "from 0" not in said
        return
    check_caption(
        said, sizes=set(sizes), case="pair", chances=set(chances), bars=(bars, rows), selected=bool(where),
        up=not lower,
    )  # fmt: skip


@given(value=st.one_of(VALUES, st.floats(-100, 100), st.floats(-0.06, 0.06), st.floats(99.9, 100)))
def test_a_shown_number_is_the_number(value: float) -> None:
    assert rounds_to(number(value), value)
    if 0 <= value <= 100:
        assert rounds_to(percent(value), value)
        assert (percent(value) == "100.0") == (value == 100) and (percent(value) == "0.0") == (value == 0)


@given(seen=st.sets(VERDICTS), few=st.booleans())
def test_a_legend_explains_the_signs_that_are_there(seen, few) -> None:  # type: ignore[no-untyped-def]
    lines = sentences.legend_of_marks(seen, few)
    for verdict, sign in sentences.MARK.items():
        assert any(line.startswith(sign) for line in lines) == (verdict in seen)
    assert any("30 cases" in line for line in lines) == few
    assert len(set(sentences.MARK.values())) == 4


@given(
    difference=st.floats(-100, 100),
    p=st.floats(0, 1),
    up=st.sampled_from([True, False, None]),
    n=st.integers(0, 500),
    won=st.tuples(st.integers(0, 250), st.integers(0, 250)),
)
def test_a_comparison_claims_what_the_test_says(difference, p, up, n, won) -> None:  # type: ignore[no-untyped-def]
    said = sentences.compared("A", "B", "Accuracy", up, difference, p)
    if p >= 0.05:
        assert said == "A and B do not differ significantly in accuracy."
    elif abs(difference) > 1e-9:
        found = re.fullmatch(
            r"(A|B) is significantly (better than|worse than|above) (A|B) by (\S+) points of accuracy\.", said
        )
        assert found and {found[1], found[3]} == {"A", "B"} and rounds_to(found[4], abs(difference))
        assert (found[1] == "A") == (difference > 0)
        assert found[2] == {True: "better than", False: "worse than", None: "above"}[up]
    n = max(n, sum(won))
    alone = (*won, n - sum(won))
    below = sentences.compared_in_full("A", "B", difference, difference - 1, difference + 1, p, "exact", alone, "pair")
    found = re.search(r"A scored more on ([\d,]+) (pairs?), B on ([\d,]+); ([\d,]+) were alike", below)
    assert found and [int(found[i].replace(",", "")) for i in (1, 3, 4)] == [*won, n - sum(won)]
    assert (found[2] == "pair") == (won[0] == 1)


@given(
    models=st.integers(1, 3),
    published=st.booleans(),
    below=st.booleans(),
    rows=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_notes_agree_in_number(models, published, below, rows) -> None:  # type: ignore[no-untyped-def]
    said = sentences.not_ranked(models, published, below)
    assert said.startswith(f"{models} model not" if models == 1 else f"{models} models not")
    assert (" it" in said) == (models == 1) and ("are listed below" in said) == below
    printed = sentences.as_printed(*rows)
    assert ("Published cells" in printed) == bool(rows[0])
    assert (f"{rows[1]} result{'' if rows[1] == 1 else 's'} shown" in printed) == bool(rows[1])


@pytest.mark.parametrize(
    ("dropped", "said"), [(0, ""), (1, "The smallest column is not shown"), (2, "The 2 smallest columns are")]
)
def test_columns_left_out(dropped: int, said: str) -> None:
    assert sentences.left_out(dropped).startswith(said) and bool(sentences.left_out(dropped)) == bool(dropped)


def test_cases_found() -> None:
    assert [sentences.cases_found(n, True) for n in (0, 1, 2)] == [
        "0 cases match.",
        "1 case matches.",
        "2 cases match.",
    ]
    assert [sentences.cases_found(n, False) for n in (1, 2)] == ["1 case.", "2 cases."]


ENDS = st.one_of(st.none(), st.tuples(st.floats(0, 50), st.floats(50, 100)))


@given(n=st.integers(1, 30_000), worth=st.one_of(st.none(), st.floats(0.1, 60_000)))
def test_an_effective_size_is_told_where_it_is_notably_less_than_n(n, worth) -> None:  # type: ignore[no-untyped-def]
    said = sentences.worth(Score(value=50.0, n=n, n_cases=n, n_effective=worth))
    assert (said == "") == (worth is None or worth >= 0.9 * n)
    assert not said or said == f" (worth {max(round(worth), 1):,} independent)"


@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 6)), min_size=3, max_size=3).map(sorted), VALUES)
def test_points_that_need_the_image(numbers, score) -> None:  # type: ignore[no-untyped-def]
    """Every printed interval is above 0 exactly where the model sees, and the sentence says that points need the image exactly then."""
    low, value, high = numbers
    found = Sight("accuracy", score, {}, "withheld", value, low, high, None, None, None, 100)
    printed = re.fullmatch(r"(-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+)\)", sentences.points(found))
    assert printed and [float(printed[at]) for at in (1, 2, 3)] == pytest.approx([value, low, high], abs=0.5)
    said = sentences.from_the_image("MediConfusion", found)
    assert said.startswith("MediConfusion: Of ") and f"({printed[2]} to {printed[3]})" in said
    assert found.sees == (float(printed[2]) > 0) == ("none is shown to need" not in said)


@given(ends=ENDS, n=st.integers(0, 30_000), cases=st.integers(0, 30_000))
def test_what_a_number_rests_on(ends, n, cases) -> None:  # type: ignore[no-untyped-def]
    low, high = ends or (None, None)
    score = Score(value=50.0, low=low, high=high, n=n, n_cases=cases)
    said = sentences.behind(score)
    assert said.endswith(f", {sentences.behind_n(score)}")
    found = re.fullmatch(
        r"(?:95% interval ([\d.]+)–([\d.]+)|no interval), n (?:not known|([\d,]+), ([\d,]+) (cases?))", said
    )
    assert found and bool(found[1]) == bool(ends)
    assert not ends or (rounds_to(found[1], ends[0]) and rounds_to(found[2], ends[1]))
    assert bool(found[3]) == bool(cases)
    if cases:
        assert [int(found[at].replace(",", "")) for at in (3, 4)] == [n, cases] and (found[5] == "case") == (cases == 1)


@given(low=st.floats(-100, 100), width=st.floats(1e-5, 60))
def test_the_interval_of_a_difference_shows_whether_it_excludes_0(low, width) -> None:  # type: ignore[no-untyped-def]
    said = sentences.difference_interval(low, low + width)
    shown = [float(end.replace("−", "-")) for end in said.split(" to ")]
    assert rounds_to(said.split(" to ")[0], low) and rounds_to(said.split(" to ")[1], low + width)
    assert (shown[0] > 0 or shown[1] < 0) == (low > 0 or low + width < 0) or min(abs(low), abs(low + width)) < 1e-8


@given(st.integers(1, 10**6))
def test_what_a_mark_is_corrected_for(tests: int) -> None:
    said = sentences.corrected_for(tests)
    assert said == (f"corrected for {tests:,} comparisons" if tests > 1 else "one comparison, not corrected")


@given(ahead=st.integers(0, 60), behind=st.integers(0, 60), tied=st.integers(0, 60))
def test_a_rank_in_words(ahead, behind, tied) -> None:  # type: ignore[no-untyped-def]
    said = sentences.ranks_in_words(ahead + 1, ahead + tied + 1, ahead, behind, tied)
    others = ahead + behind + tied
    ranks = [ahead + 1] if not tied else [ahead + 1, ahead + tied + 1]
    pairs = [others * (others + 1) // 2] if others > 1 else []
    numbers = [int(n) for n in re.findall(r"\d+", said.replace(",", ""))]
    assert numbers == [*ranks, *(n for n in (ahead, behind, tied) if n), *pairs] and (
        "no model is significantly better" in said
    ) == (not ahead)


@given(abstained=st.one_of(st.none(), st.floats(0, 100)), accuracy=st.one_of(st.none(), st.floats(0, 100)))
def test_what_stands_beside_a_score(abstained, accuracy) -> None:  # type: ignore[no-untyped-def]
    found = re.fullmatch(
        r"(?:abstained ([\d.<>]+)%)?(?:, )?(?:accuracy where answered ([\d.<>]+)%)?",
        sentences.beside(abstained, accuracy),
    )
    assert found
    for shown, value in ((found[1], abstained), (found[2], accuracy)):
        assert (shown is None) == (value is None) and (shown is None or rounds_to(shown, value))


@given(verdict=VERDICTS, chance=st.one_of(st.none(), st.floats(0, 100)))
def test_a_verdict_in_short_names_its_chance(verdict, chance) -> None:  # type: ignore[no-untyped-def]
    said = sentences.in_short(verdict, "guessing", chance)
    words = {
        "better": "better than",
        "worse": "worse than",
        "no different": "not significantly different",
        None: "not tested",
    }
    assert [word for word in words.values() if word in said] == [words[verdict]]
    level = re.search(r"([\d.]+)%", said)
    assert (level is None) == (chance is None) and (level is None or rounds_to(level[1], chance))


@given(
    known=st.one_of(st.integers(1, 3), st.integers(1, 300)), left=st.integers(0, 50), against=st.booleans(), right=st.integers(0, 9),
    wrong=st.integers(0, 9), between=st.integers(0, 9), show=st.sampled_from(["wrong", "split"]),
)  # fmt: skip
def test_counts_of_results_and_cases(known, left, against, right, wrong, between, show) -> None:  # type: ignore[no-untyped-def]
    said = sentences.ends("organ", "Accuracy", known, left, against)
    assert f"the lowest and highest of {known} by score" in said and ("minus what guessing gets" in said) == against
    rest = re.search(r"(\d+) others? with fewer than (\d+) cases (is|are) left out", said)
    assert bool(rest) == bool(left) and (not rest or (int(rest[1]), int(rest[2])) == (left, sentences.FEW))
    assert not rest or (rest[3] == "is") == (left == 1)
    scored = right + wrong + between
    said = sentences.case_result(right, wrong, scored)
    numbers = [int(n) for n in re.findall(r"\d+", said)]
    assert numbers == ([right, scored, *([between] if between else [])] if scored else [])
    said = sentences.shown_cases(show, known)
    assert f"{known} result{'' if known == 1 else 's'} " in said and ("together" in said) <= (known > 1)
    assert ("none of" in said) == (show == "wrong" and known > 1)


@given(
    paired=st.integers(0, 40), unpaired=st.integers(0, 40), difference=st.floats(-100, 100), p=st.floats(0, 1)
)  # fmt: skip
def test_how_pairs_were_tested(paired, unpaired, difference, p) -> None:  # type: ignore[no-untyped-def]
    said = sentences.pairs_tested(paired, unpaired) if paired or unpaired else ""
    for number_of, how in ((paired, "on the same answers"), (unpaired, "by the scores alone")):
        found = re.search(rf"(\d+) (pairs?) {how}", said)
        assert (found is not None) == (number_of > 0)
        assert not found or (int(found[1]) == number_of and (found[2] == "pair") == (number_of == 1))
    said = sentences.compared_unpaired(difference, difference - 1, difference + 1, p)
    found = re.match(r"Difference (\S+) points \(95% interval (\S+) to (\S+); p ([<=]) ([\d.]+)", said)
    assert found and all(
        rounds_to(found[at], value) for at, value in ((1, difference), (2, difference - 1), (3, difference + 1))
    )
    assert p < 0.001 if found[4] == "<" else abs(float(found[5]) - p) <= 0.0005 + 1e-9
    assert ("under 0.05" in said) <= (p < 0.05)


def test_the_first_sentence_claims_what_was_tested() -> None:
    for models in (1, 2, 3, 14, 40):
        for better in range(models + 1):
            for worse in range(models - better + 1):
                said = sentences.trust(
                    sentences.Trust("tell two images apart", models, better, worse, "flipping a coin")
                )
                check_trust(said, models, better, worse)


def test_every_sentence_has_a_test() -> None:
    """Who adds a sentence says here, or beside the page that shows it, what it claims."""
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("*.py"))
    own = [
        name
        for name, found in vars(sentences).items()
        if str(getattr(found, "__module__", "")).startswith(f"{sentences.__name__}.")
    ]
    functions = [name for name in own if callable(getattr(sentences, name)) and name[0].islower() and name[0] != "_"]
    doctests = {
        "month",
        "percent_of_chance",
        "by_random_run",
        "by_aspect",
        "nothing_together",
        "in_running_text",
        "weakest",
        "each_alone",
    }  # the examples in their docstrings
    assert not [name for name in functions if name not in doctests and f"sentences.{name}(" not in tests]
