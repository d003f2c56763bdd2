"""Entries of the ledger of a hidden test: which user had which file scored on which day.

A scoring is booked before it is computed, so that neither a crash nor many requests at once give more of them. See also: how the ledger is
kept (`ledger.py`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from dataset_builders.errors import BadInput, clip
from eval_harness.store.hidden_test.ledger import Document, Read

USER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,95}", re.ASCII)
"""What the Hub allows in a user name, and a little more; it becomes a file name, so no slash and no dot in front."""


def user_name(user: str) -> str:
    """A user's name as the ledger writes it. BadInput for an empty name, and for one that could be a path."""
    if not isinstance(user, str) or not user.strip():
        raise BadInput("not signed in: sign in with your Hugging Face account, then ask again.")
    if not USER_NAME.fullmatch(user):
        raise BadInput(f"user {clip(user)}: is not a Hugging Face user name. Sign in again.")
    return user.lower()  # the Hub does not tell Ann from ann


def path_of(user: str) -> str:
    return f"users/{user}.json"


def scorings_of(document: Document | None) -> list[Document]:
    """The scorings of a user, oldest first. BadInput for a document that somebody has damaged: it is not taken for an empty one."""
    if document is None:
        return []
    scorings = document.get("scorings")
    needed = {"day", "sha256", "choices", "test", "score", "questions"}
    if not isinstance(scorings, list) or not all(isinstance(each, dict) and needed <= each.keys() for each in scorings):
        raise BadInput("hidden test: the ledger of this user is damaged. Tell the board's owner; nothing was counted.")
    return list(scorings)


def remember(look: Read, user: str, booked: Document, value: float, count: int) -> tuple[None, dict[str, Document]]:
    """Write the score to its booking; once it stands there it stays."""
    document = look(path_of(user))
    scorings = scorings_of(document)
    for number, entry in enumerate(scorings):
        if entry["test"] == booked["test"] and entry["sha256"] == booked["sha256"] and entry["score"] is None:
            scorings[number] = entry | {"score": value, "questions": count}
            return None, {path_of(user): {"user": user, "scorings": scorings}}
    return None, {}


def left(scorings: list[Document], per_day: int, now: datetime) -> int:
    """Scorings that are left on the day of `now` (UTC)."""
    return max(0, per_day - sum(entry["day"] == day_of(now) for entry in scorings))


def book(look: Read, user: str, entry: Document, per_day: int) -> tuple[tuple[Document, int, str], dict[str, Document]]:
    """Find the booking of this file, or make one. A booking without a score is of a scoring that was cut short: it is used again."""
    now = now_utc()
    scorings = scorings_of(look(path_of(user)))
    for known in scorings:
        if known["test"] == entry["test"] and (
            known["sha256"] == entry["sha256"] or known["choices"] == entry["choices"]
        ):
            return (known, left(scorings, per_day, now), day_of(now)), {}
    if left(scorings, per_day, now) == 0:
        raise BadInput(
            f"{user}: {'the one scoring' if per_day == 1 else f'the {per_day} scorings'} of {day_of(now)} (UTC) "
            f"{'is' if per_day == 1 else 'are'} used up. The next is possible on {day_of(now + timedelta(days=1))} from "
            "00:00 UTC; a file that was scored before can be asked for again at any time."
        )
    booked = entry | {
        "time": now.isoformat(timespec="seconds"),
        "day": day_of(now),
        "questions": None,
        "score": None,
    }
    scorings.append(booked)
    document: Document = {"user": user, "scorings": scorings}
    return (booked, left(scorings, per_day, now), day_of(now)), {path_of(user): document}


def now_utc() -> datetime:
    return datetime.now(UTC)


def day_of(now: datetime) -> str:
    return now.date().isoformat()
