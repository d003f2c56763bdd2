"""The board's one cache: results of functions of snapshots, sections and queries, none of which ever changes.

A section whose files change is replaced by a new one (`board.py`), so a cached result is never updated: `keep` drops the results of
sections that are gone, and MAX_RESULTS bounds the others. Tables of the package itself, which nothing can change, use `functools.cache`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MAX_RESULTS = 1024
READING, COMPUTING = threading.RLock(), threading.RLock()
"""Held while files are read, and while results are computed: parallel threads would only contend for the interpreter. They are two, so that
readers of one section do not wait for the files of another. A function that reads must not call one that computes (deadlock)."""

_results: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
"""(function, arguments) -> result, the least recently used first. A key keeps its arguments alive, so no `id` is reused."""
_changing = threading.Lock()


def cached(lock: AbstractContextManager[Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function of hashable positional arguments: each result is computed once, under `lock`, and then kept."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def lookup(*args: P.args, **kwargs: P.kwargs) -> R:
            key = (function, *args)
            with suppress(KeyError):
                return _recall(key)  # waits for no computation
            with lock:
                with suppress(KeyError):
                    return _recall(key)  # another thread has computed it meanwhile
                result = function(*args, **kwargs)
                with _changing:
                    _results[key] = result
                    while len(_results) > MAX_RESULTS:
                        _results.popitem(last=False)
                return result

        return lookup

    return decorate


def keep(owners: AbstractSet[object]) -> None:
    """Drop every result that was computed from none of `owners` (snapshots and sections)."""
    with _changing:
        for key in [key for key in _results if owners.isdisjoint(key)]:
            del _results[key]


def _recall(key: tuple[Any, ...]) -> Any:
    with _changing:
        _results.move_to_end(key)
        return _results[key]
