"""Check every sentence that the board computes over generated numbers: its claims follow from them
(see `claims.py`).
"""

import re

import pytest
from hypothesis import given, strategies as st

from eval_harness.store.sight import Sight
from leaderboard_space import headlines, sentences
from leaderboard_space.headlines import HeadlineFacts, RankedModel
from leaderboard_space.html import number, score_text
from tests.leaderboard_space.checks.claims import Truth, check_headline, check_trust, rounds_to

# Differences below 1e-9 count as equal, so no generated difference is near that limit.
VALUES = st.one_of(
    st.sampled_from([0.0, 100.0, 25.0, 29.55, 29.545454545, 99.97, 0.01, 50.0, 33.3333333333]),
    st.floats(0, 100).map(lambda value: round(value, 6)),
)
DRAWN_VERDICTS = st.sampled_from(["better", "no different", "worse", None])


@st.composite
def findings(draw: st.DrawFn, untested: bool = False) -> tuple[HeadlineFacts, list[Truth]]:
    """Generate headline facts. `untested`: chance is unknown for all, so that the headline is about
    the highest score; there are few values, so that some are equal.
    """
    size = draw(st.one_of(st.integers(0, 6), st.sampled_from([13, 60])))
    pool = draw(st.lists(VALUES, min_size=1, max_size=3)) if untested or draw(st.booleans()) else None  # ties
    verdicts = (
        st.none()
        if untested
        else draw(
            st.sampled_from(
                [DRAWN_VERDICTS, st.just("better"), st.just(None), st.sampled_from(["worse", "no different"])]
            )
        )
    )
    values = [draw(st.sampled_from(pool) if pool else VALUES) for _ in range(size)]
    up = draw(st.booleans())
    values.sort(reverse=up)
    tied = draw(st.integers(1, max(size, 1)))
    rows = []
    for at, value in enumerate(values):  # of equal scores, neither is worse
        first_rank = 1 if at < tied or abs(value - values[0]) < 1e-9 else at + 1
        rows.append(Truth(f"Model {at}", value, draw(verdicts), first_rank))
    facts = HeadlineFacts(
        about="",
        guess=draw(st.sampled_from(["guessing", "flipping a coin", "flipping a coin for each image"])),
        ranked=tuple(RankedModel(row.name, row.value, row.verdict, row.first) for row in rows),  # type: ignore[arg-type]
        are_models=draw(st.booleans()),
        higher=up,
        baselines=draw(st.integers(0, 2)),
        uncounted=draw(st.integers(0, 2)),
        partial=draw(st.integers(0, 2)),
        apart=draw(st.integers(0, 2)),
    )
    return facts, rows


@given(st.one_of(findings(), findings(untested=True)))
def test_a_headline_claims_what_its_numbers_show(example: tuple[HeadlineFacts, list[Truth]]) -> None:
    facts, rows = example
    check_headline(
        headlines.compose_headline(facts), rows, baselines=facts.baselines, uncounted=facts.uncounted, partial=facts.partial,
        up=facts.higher, models=facts.are_models, stand_apart=facts.apart,
    )  # fmt: skip


@given(value=st.one_of(VALUES, st.floats(-100, 100), st.floats(-0.06, 0.06), st.floats(99.9, 100)))
def test_a_shown_number_is_the_number(value: float) -> None:
    assert rounds_to(number(value), value)
    if 0 <= value <= 100:
        assert rounds_to(score_text(value), value)
        assert (score_text(value) == "100.0") == (value == 100) and (score_text(value) == "0.0") == (value == 0)


@given(st.lists(st.floats(-100, 100).map(lambda value: round(value, 6)), min_size=3, max_size=3).map(sorted), VALUES)
def test_points_that_need_the_image(numbers, score) -> None:  # type: ignore[no-untyped-def]
    """A printed interval is above 0 if and only if the model sees, and then the sentence says that
    points need the image.
    """
    low, value, high = numbers
    sight = Sight("accuracy", score, {}, "withheld", value, low, high, None, None, None, 100)
    printed = re.fullmatch(r"(-?[\d.]+) \((-?[\d.]+) to (-?[\d.]+)\)", sentences.format_image_gain(sight))
    assert printed and [float(printed[at]) for at in (1, 2, 3)] == pytest.approx([value, low, high], abs=0.5)
    sentence = sentences.image_gain_sentence("MediConfusion", sight)
    assert sentence.startswith("MediConfusion: Of ") and f"({printed[2]} to {printed[3]})" in sentence
    assert sight.sees == (float(printed[2]) > 0) == ("none is shown to need" not in sentence)


@given(low=st.floats(-100, 100), width=st.floats(1e-5, 60))
def test_the_interval_of_a_difference_shows_whether_it_excludes_0(low, width) -> None:  # type: ignore[no-untyped-def]
    formatted = sentences.format_difference_interval(low, low + width)
    printed_ends = [float(end.replace("−", "-")) for end in formatted.split(" to ")]
    assert rounds_to(formatted.split(" to ")[0], low) and rounds_to(formatted.split(" to ")[1], low + width)
    assert (printed_ends[0] > 0 or printed_ends[1] < 0) == (low > 0 or low + width < 0) or min(
        abs(low), abs(low + width)
    ) < 1e-8


def test_the_first_sentence_claims_what_was_tested() -> None:
    for models in (1, 2, 3, 14, 40):
        for better in range(models + 1):
            for worse in range(models - better + 1):
                sentence = headlines.board_headline(
                    headlines.TrustCounts("tell two images apart", models, better, worse, "flipping a coin")
                )
                check_trust(sentence, models, better, worse)
