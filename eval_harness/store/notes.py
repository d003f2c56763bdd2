"""`medprobe withdraw` and `medprobe annotate`: statements about a stored result by its submitter or the store's owner.

A withdrawn result stays where it is, marked so by a file of its own; a note is a file as well. To a folder, those who may write to it add
them; on the Hub the owner commits them, and who submitted the result opens a pull request that `medprobe verify` adds.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dataset_builders.errors import BadInput, clip
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import hide_progress_bars, http_status, hub_errors, sign_in, with_retries
from dataset_builders.hub.commits import commit_files
from eval_harness.store.acceptance import (
    MAX_TEXT,
    WITHDRAWN,
    Acceptance,
    Note,
    RecordT,
    Withdrawal,
    local_account,
    parse_record,
    utc_now,
)
from eval_harness.store.hub_store import COMMIT_TRIES, fetch_acceptance
from eval_harness.store.scan import is_hub_store

NOTE_PATH = re.compile(
    r"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/(withdrawn|note-[0-9a-f]{16})\.json", re.ASCII
)
"""Path of a note: the result's folder and the file name."""
RecordFactory = Callable[[str], tuple[str, Withdrawal | Note]]
"""The name and content of a note's file, by the account that makes it."""


def withdraw(store: str | Path, result: str, reason: str, account: str | None = None) -> tuple[str, bool]:
    """Mark a result as withdrawn; returns where that is said, and whether it is new. `result`: its id, or its folder in the store.

    `account`: who says so in a folder store, this machine's user if not said.
    Raises BadInput: no such result, no reason, no right to, a store that cannot be written or reached.
    """
    return _add_record(
        store,
        result,
        account,
        lambda who: (
            WITHDRAWN,
            _make_record(Withdrawal, "--reason", account=who, withdrawn_at=utc_now(), reason=_to_one_line(reason)),
        ),
    )


def annotate(store: str | Path, result: str, text: str, account: str | None = None) -> tuple[str, bool]:
    """Attach a note to a result; returns its location, and whether it is new. Raises BadInput as `withdraw` does."""

    def note(who: str) -> tuple[str, Note]:
        made = _make_record(Note, "--note", account=who, written_at=utc_now(), text=_to_one_line(text))
        return made.file_name, made

    return _add_record(store, result, account, note)


def note_problem(path: str, content: bytes, author: str, owner: str, acceptance: Acceptance | None) -> str | None:
    """Why a pull request's note is not acceptable; None if it is. `acceptance`: of the result that it is about."""
    kind = Withdrawal if path.endswith(f"/{WITHDRAWN}") else Note
    try:
        account = parse_record(content, kind, path).account
    except BadInput as error:
        return str(error)
    if account.lower() != author.lower():
        return f"says that it is by {clip(account)}, and is by {author}"
    submitter = acceptance.account if acceptance is not None else None
    if author.lower() not in {owner.lower(), (submitter or owner).lower()}:
        return f"only {submitter or owner}, who submitted the result, or the store's owner can say this; {author} can open a discussion"
    return None


def _to_one_line(text: str) -> str:
    return " ".join(text.split())


def _make_record(kind: type[RecordT], option: str, **fields: Any) -> RecordT:
    """One of these files. Raises BadInput if the text of an option cannot stand in it."""
    try:
        return kind(**fields)
    except ValidationError:
        raise BadInput(f"{option}: give from 1 to {MAX_TEXT:,} characters of plain text.") from None


def _add_record(store: str | Path, result: str, account: str | None, make: RecordFactory) -> tuple[str, bool]:
    if is_hub_store(store):
        return _add_on_hub(str(store), result, make)
    root = Path(store)
    paths = [path.parent.relative_to(root).as_posix() for path in root.glob("results/*/*/*/result.json")]
    folder = root / _find_result(result, paths, str(store))
    name, record = make(account or local_account())
    incoming = root / ".incoming"
    try:
        incoming.mkdir(exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            (staging / name).write_bytes(record.to_bytes())
            os.link(staging / name, folder / name)  # fails if the file exists: the first one is kept
    except FileExistsError:
        return str(folder / name), False
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}).") from None
    return str(folder / name), True


def _find_result(result: str, folders: list[str], store: str) -> str:
    """The one result of an id, or of a folder in the store."""
    wanted = result.strip("/")
    found = sorted({folder for folder in folders if folder == wanted or folder.rsplit("/", 1)[-1] == wanted})
    if len(found) != 1:
        what, ask = (
            ("no such result", "its id, or its folder") if not found else (f"{len(found)} of this id", "the folder")
        )
        raise BadInput(f"{store}: holds {what}: {clip(result, 200)}. Give {ask} as the store has it, results/...")
    return found[0]


def _add_on_hub(repo_id: str, result: str, make: RecordFactory) -> tuple[str, bool]:
    api, who = sign_in(repo_id)
    with hide_progress_bars(), hub_errors(repo_id, "add a note"):
        head = str(with_retries(lambda: api.repo_info(repo_id, repo_type="dataset").sha))
        names = with_retries(lambda: api.list_repo_files(repo_id, revision=head, repo_type="dataset"))
        folder = _find_result(result, [n.rsplit("/", 1)[0] for n in names if n.endswith("/result.json")], repo_id)
        name, record = make(who)
        path = f"{folder}/{name}"
        if path in names:
            return f"{api.endpoint}/datasets/{repo_id}/blob/main/{path}", False

        def commit(as_pull_request: bool) -> str:
            message = f"{'Withdraw' if name == WITHDRAWN else 'Note under'} {folder}"[:190]
            done = commit_files(api, repo_id, {path: record.to_bytes()}, message, pull_request=as_pull_request)
            return str(done.pr_url) if as_pull_request else f"{api.endpoint}/datasets/{repo_id}/blob/main/{path}"

        try:
            return with_retries(lambda: commit(False), tries=COMMIT_TRIES), True
        except Exception as error:
            if http_status(error) != 403:
                raise
        acceptance = fetch_acceptance(api, repo_id, head, folder)
        if acceptance is None or acceptance.account.lower() != who.lower():
            by = acceptance.account if acceptance else "an account that the store does not know"
            raise BadInput(
                f"{repo_id}: {folder} was submitted by {by}; only they and the store's owner can do this, not {who}."
            )
        return with_retries(lambda: commit(True)), True
