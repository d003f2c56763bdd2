"""Patterns that are tried only where one of their first words stands find what the same patterns find anywhere."""

from __future__ import annotations

import importlib
import json
import pkgutil
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from eval_harness import answer_reading, answers
from eval_harness.answer_reading import words
from eval_harness.answer_reading.words import Phrase, is_wide, says_any


def phrases() -> dict[str, Phrase]:
    """Every phrase of the reader, by module and name."""
    found: dict[int, tuple[str, Phrase]] = {}
    for module in pkgutil.walk_packages(answer_reading.__path__, answer_reading.__name__ + "."):
        for name, value in vars(importlib.import_module(module.name)).items():
            for each in (
                value if isinstance(value, (tuple, list)) else value.values() if isinstance(value, dict) else [value]
            ):
                if isinstance(each, Phrase):
                    found.setdefault(id(each), (f"{module.name.rpartition('.')[2]}.{name}", each))
    return {f"{name}-{number}": each for number, (name, each) in enumerate(found.values())}


PHRASES = phrases()


def test_the_phrases_are_found() -> None:
    assert len(PHRASES) > 20


@pytest.mark.parametrize("name", PHRASES)
def test_a_phrase_finds_what_its_pattern_finds(name: str) -> None:
    phrase = PHRASES[name]
    seen = 0

    @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(
        st.from_regex(phrase.pattern), st.sampled_from(["", "The ", "so, ", "x\n"]), st.sampled_from(["", ".", " B"])
    )
    def check(text: str, before: str, after: str) -> None:
        nonlocal seen
        text = before + text + after
        found = [match.span() for match in phrase.pattern.finditer(text)]
        assume(found and (not phrase.wide.isdisjoint(text) or not is_wide(text)))
        assume(
            not any(text[start - 1 : start].isalnum() and text[start].isalnum() for start, _ in found)
        )  # inside a word
        seen += 1
        assert [match.span() for match in phrase.find(text)] == found, text
        assert says_any(text, [phrase]), text
        assert (first := phrase.search(text)) is not None and first.span() == found[0], text

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check()
    assert seen


@pytest.mark.parametrize(
    ("gate", "opened"), [("says", lambda *_: True), ("says_between", lambda *_: True), ("bits_of", lambda _: -1)]
)
def test_no_reading_depends_on_what_saves_time(gate, opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every answer is read the same where all patterns are tried on it, whatever words it says."""
    names = [module.name for module in pkgutil.walk_packages(answer_reading.__path__, answer_reading.__name__ + ".")]
    modules = [answers, *map(importlib.import_module, names)]
    cases = [json.loads(line) for line in Path(__file__).with_name("answer_cases.jsonl").read_text().splitlines()]

    def readings() -> list[answers.Reading]:
        for module in modules:
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()
        return [
            answers.read_choice(
                case["response"], case["options"], case["type"], case.get("question"), case.get("finish_reason")
            )
            for case in cases
        ]

    before, original, patched = readings(), getattr(words, gate), 0
    for module in modules:
        if getattr(module, gate, None) is original:
            monkeypatch.setattr(module, gate, opened)
            patched += 1
    assert patched > 2
    assert [(case, one) for case, one, other in zip(cases, before, readings(), strict=True) if one != other] == []
