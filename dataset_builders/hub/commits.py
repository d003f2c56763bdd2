"""A commit on the Hub: the only function that makes one. See also: trying again (client.with_retries), what is published (publish.py)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi


def commit_files(
    api: HfApi,
    repo_id: str,
    files: Mapping[str, bytes | Path | None],
    message: str,
    kind: str = "dataset",
    *,
    description: str | None = None,
    parent: str | None = None,
    revision: str | None = None,
    pull_request: bool = False,
) -> CommitInfo:
    """Write these files (None: delete it) in one commit, whole or not at all.

    `parent`: the commit that the files were computed from; the Hub refuses (412) when another came in between, and whoever tries again
    computes them anew. `revision`: a branch or pull request other than main. `pull_request`: open one instead of writing to main.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        CommitOperationDelete(path)
        if content is None
        else CommitOperationAdd(path, str(content) if isinstance(content, Path) else content)
        for path, content in sorted(files.items(), key=lambda item: (item[1] is not None, item[0]))
    ]
    return api.create_commit(
        repo_id,
        operations,
        commit_message=message,
        commit_description=description,
        repo_type=kind,
        parent_commit=parent,
        revision=revision,
        create_pr=pull_request,
    )
