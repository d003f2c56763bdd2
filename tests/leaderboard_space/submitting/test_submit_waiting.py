"""The list of open submissions: asked for once a minute, and again after one was opened; an odd answer is one line."""

from collections.abc import Iterator

import pytest

from dataset_builders.errors import BadInput
from leaderboard_space.data import open_submissions
from leaderboard_space.data.open_submissions import OpenSubmissions, Waiting


def test_the_hub_is_asked_again_after_a_submission_or_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter(range(1, 9))

    def waiting(store: str) -> Iterator[Waiting]:
        number = next(asked)
        if number == 3:
            raise KeyError("createdAt")
        yield Waiting(number, "Add x", "reader", "2026-01-01", "http://x/1", "not yet verified")

    monkeypatch.setattr(open_submissions, "_waiting", waiting)
    listed = OpenSubmissions("ORG/results")
    assert [listed.list()[0].number for _ in range(3)] == [1, 1, 1]
    listed.forget()
    assert listed.list()[0].number == 2
    monkeypatch.setattr(open_submissions, "RECHECK_SECONDS", 0.0)
    listed.forget()
    with pytest.raises(BadInput, match="cannot be parsed"):
        listed.list()
    assert listed.list()[0].number == 4
