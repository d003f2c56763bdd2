"""The list of open submissions: a Hub that is slow or odd must not hold up, or lose, the word that a submission has landed."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dataset_builders.errors import BadInput
from leaderboard_space.data import open_submissions
from leaderboard_space.data.open_submissions import OpenSubmissions, Waiting


class SlowHub:
    """Lists one open pull request, once it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.asked = 0

    def list(self, store: str) -> Iterator[Waiting]:
        self.asked += 1
        number = self.asked
        assert self.may_answer.wait(60)
        yield Waiting(number, "Add x", "reader", "2026-01-01", "http://x/1", "not yet verified")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> SlowHub:
    made = SlowHub()
    monkeypatch.setattr(open_submissions, "_waiting", made.list)
    return made


def test_a_slow_hub_is_not_waited_for(hub: SlowHub, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = OpenSubmissions("ORG/results")
    with monkeypatch.context() as hurry:
        hurry.setattr(open_submissions, "TIMEOUT", 0.05)
        for _ in range(3):
            with pytest.raises(BadInput, match="is slow to list"):
                listed.list()
    hub.may_answer.set()
    assert [each.number for each in listed.list()] == [1]
    assert hub.asked == 1


def test_many_submissions_at_once_are_not_as_many_lists(hub: SlowHub) -> None:
    listed = OpenSubmissions("ORG/results")
    ready = threading.Barrier(21)

    def one(_: int) -> list[Waiting]:
        listed.forget()
        ready.wait(60)
        return listed.list()

    with ThreadPoolExecutor(20) as pool:
        jobs = [pool.submit(one, n) for n in range(20)]
        ready.wait(60)
        hub.may_answer.set()
        assert all(job.result(60) for job in jobs)
    assert hub.asked == 1


def test_what_was_opened_after_a_look_began_is_in_the_next(hub: SlowHub) -> None:
    listed = OpenSubmissions("ORG/results")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(listed.list)
        while not hub.asked:
            pass
        listed.forget()
        second = pool.submit(listed.list)
        hub.may_answer.set()
        assert [each.number for each in first.result(60)] in ([1], [2])
        assert [each.number for each in second.result(60)] == [2]


def test_an_odd_answer_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def odd(store: str) -> Iterator[Waiting]:
        raise KeyError("createdAt")
        yield

    monkeypatch.setattr(open_submissions, "_waiting", odd)
    with pytest.raises(BadInput, match="cannot be parsed"):
        OpenSubmissions("ORG/results").list()
