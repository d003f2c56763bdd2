"""`medprobe withdraw`: withdraw a stored result.

The result's submitter and the store's owner may do this. A file is added next to the result, which
itself stays where it is. In a folder store, anyone with write access can add the file. On the Hub,
the owner commits it, and the submitter opens a pull request that `medprobe verify` adds.
"""

import os
import re
from pathlib import Path

from pydantic import ValidationError

from dataset_builders.errors import BadInput, clip
from dataset_builders.files import temporary_folder
from dataset_builders.hub.client import commit_files, hide_progress_bars, http_status, hub_errors, sign_in, with_retries
from eval_harness.store.contents import (
    MAX_REASON_LENGTH,
    WITHDRAWN,
    Acceptance,
    Withdrawal,
    is_hub_store,
    local_account,
    parse_record,
    utc_now,
)
from eval_harness.store.hub_store import COMMIT_TRIES, fetch_acceptance

WITHDRAWAL_PATH = re.compile(
    rf"(results/[A-Za-z0-9][\w.-]*/[A-Za-z0-9_][\w.-]*/[A-Za-z0-9][\w.-]*)/{re.escape(WITHDRAWN)}", re.ASCII
)
"""Path of a withdrawal; its group is the result's folder."""


def withdraw(store: str | Path, result: str, reason: str, account: str | None = None) -> tuple[str, bool]:
    """Mark a result as withdrawn.

    Args:
        store: A folder, or ORG/NAME on the Hub.
        result: Id of the result, or its folder in the store.
        reason: Plain text, at most MAX_REASON_LENGTH characters.
        account: Who withdraws it, in a folder store; None uses this machine's user.

    Returns:
        The location of the withdrawal, and whether it is new.

    Raises:
        BadInput: If there is no such result, no reason or no permission, or the store cannot be
            written or reached.
    """
    if is_hub_store(store):
        return _withdraw_on_hub(str(store), result, reason)
    root = Path(store)
    paths = [path.parent.relative_to(root).as_posix() for path in root.glob("results/*/*/*/result.json")]
    folder = root / _find_result(result, paths, str(store))
    content = _withdrawal(account or local_account(), reason)
    # Written elsewhere first, so that a reader never sees a partial file.
    incoming = root / ".incoming"

    try:
        incoming.mkdir(exist_ok=True)
        with temporary_folder(incoming, "") as staging:
            (staging / WITHDRAWN).write_bytes(content)
            # Atomic, and fails if the file exists, so that the first one is kept.
            os.link(staging / WITHDRAWN, folder / WITHDRAWN)
    except FileExistsError:
        return str(folder / WITHDRAWN), False
    except OSError as error:
        raise BadInput(f"{folder}: cannot be written ({error.strerror}).") from None

    return str(folder / WITHDRAWN), True


def withdrawal_problem(path: str, content: bytes, author: str, owner: str, acceptance: Acceptance | None) -> str | None:
    """Check a withdrawal that a pull request adds.

    Args:
        path: Path of the file in the store.
        content: The untrusted content.
        author: Author of the pull request.
        owner: Owner of the store.
        acceptance: Acceptance of the result that the file is about.

    Returns:
        Why the file must not be added; None if it may be.
    """
    try:
        account = parse_record(content, Withdrawal, path).account
    except BadInput as error:
        return str(error)

    if account.lower() != author.lower():
        return f"names {clip(account)} as its author, but was opened by {author}"
    submitter = acceptance.account if acceptance is not None else None
    # The Hub's account names are case-insensitive.
    if author.lower() not in {owner.lower(), (submitter or owner).lower()}:
        return f"only the submitter ({submitter or owner}) or the store's owner can add this; {author} can open a discussion"

    return None


def _withdrawal(account: str, reason: str) -> bytes:
    """Return the content of a withdrawal. Raises BadInput if the reason is not plain text."""
    try:
        return Withdrawal(account=account, withdrawn_at=utc_now(), reason=" ".join(reason.split())).to_bytes()
    except ValidationError:
        raise BadInput(f"--reason: give from 1 to {MAX_REASON_LENGTH:,} characters of plain text.") from None


def _find_result(result: str, folders: list[str], store: str) -> str:
    """Return the folder of the only result with this id or folder.

    Raises BadInput if there is none, or several with this id.
    """
    result_path = result.strip("/")
    matches = sorted(
        {folder for folder in folders if folder == result_path or folder.rsplit("/", 1)[-1] == result_path}
    )
    if len(matches) != 1:
        problem, needed = (
            ("no such result", "its id or folder") if not matches else (f"{len(matches)} with this id", "its folder")
        )
        raise BadInput(f"{store}: {problem}: {clip(result, 200)}. Give {needed} in the store (results/...)")

    return matches[0]


def _withdraw_on_hub(repo_id: str, result: str, reason: str) -> tuple[str, bool]:
    """Withdraw on the Hub: by a commit if this account may write, else by a pull request."""
    api, account = sign_in(repo_id)
    with hide_progress_bars(), hub_errors(repo_id, "withdraw a result"):
        head = str(with_retries(lambda: api.repo_info(repo_id, repo_type="dataset").sha))
        names = with_retries(lambda: api.list_repo_files(repo_id, revision=head, repo_type="dataset"))
        folder = _find_result(result, [n.rsplit("/", 1)[0] for n in names if n.endswith("/result.json")], repo_id)
        content = _withdrawal(account, reason)
        path = f"{folder}/{WITHDRAWN}"
        url_on_main = f"{api.endpoint}/datasets/{repo_id}/blob/main/{path}"
        if path in names:
            return url_on_main, False

        def commit(as_pull_request: bool) -> str:
            message = f"Withdraw {folder}"[:190]
            commit_info = commit_files(api, repo_id, {path: content}, message, pull_request=as_pull_request)
            return str(commit_info.pr_url) if as_pull_request else url_on_main

        try:
            return with_retries(lambda: commit(False), tries=COMMIT_TRIES), True
        except Exception as error:
            # No write access: the submitter may still open a pull request.
            if http_status(error) != 403:
                raise
        acceptance = fetch_acceptance(api, repo_id, head, folder)
        if acceptance is None or acceptance.account.lower() != account.lower():
            submitter = acceptance.account if acceptance else "an unknown account"
            raise BadInput(
                f"{repo_id}: {folder} was submitted by {submitter}; only they or the store's owner "
                f"can do this, not {account}."
            )
        return with_retries(lambda: commit(True)), True
