"""The board's only cache: results of functions of snapshots, sections and queries, all of them
immutable.

A section whose files change is replaced (`board.py`), so a cached result is never updated: `keep`
drops the results of replaced sections, and MAX_RESULTS bounds the rest. Constant tables of the
package use `functools.cache`.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Set as AbstractSet
from contextlib import AbstractContextManager, suppress
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MAX_RESULTS = 1024
READING, COMPUTING = threading.RLock(), threading.RLock()
"""Locks held while files are read and while results are computed: parallel threads would only
contend for the interpreter. Two locks, so that visitors of one section do not wait for another's
files. Functions cached under READING must not call functions cached under COMPUTING (deadlock)."""

_results: OrderedDict[tuple[Any, ...], Any] = OrderedDict()
"""(function, *arguments) -> result, least recently used first."""
_changing = threading.Lock()


def cached(lock: AbstractContextManager[Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function to compute each result once and keep it.

    Args:
        lock: READING or COMPUTING; held while a result is computed, not while a cached one is
            returned.

    Returns:
        A decorator of functions with hashable arguments. Errors are not cached.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def lookup(*args: P.args, **kwargs: P.kwargs) -> R:
            # Keyword arguments are part of the key: calls that differ in one are different results.
            key = (function, *args, *kwargs.items())
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
    """Drop all results except those computed from one of `owners`.

    Args:
        owners: The current snapshot and its sections. A result is kept if one of them was an
            argument.
    """
    with _changing:
        for key in [key for key in _results if owners.isdisjoint(key)]:
            del _results[key]


def _recall(key: tuple[Any, ...]) -> Any:
    with _changing:
        _results.move_to_end(key)
        return _results[key]
