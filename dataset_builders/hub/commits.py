"""Commit files to the Hub, and check whether a commit was released by the repository's owner.

Neither uses a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dataset_builders.hub.client import connect, hub_errors, with_retries

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
    """Write files in one commit, completely or not at all.

    Args:
        api: a client that may write.
        repo_id: the repository.
        files: path -> content or file; None deletes it.
        message: title of the commit.
        kind: "dataset", "space" or "model".
        description: body of the commit message.
        parent: the commit that the files were computed from. The Hub refuses (412) if another
            commit came in between; recompute the files then.
        revision: a branch or pull request; None for main.
        pull_request: open a pull request instead of writing to main.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        CommitOperationDelete(path)
        if content is None
        else CommitOperationAdd(path, str(content) if isinstance(content, Path) else content)
        for path, content in sorted(files.items(), key=lambda item: (item[1] is not None, item[0]))
    ]

    # The images of `cases` are also in `questions`. hf_xet deduplicates against earlier uploads but
    # not within one, so upload config by config.
    configs: dict[str, list[CommitOperationAdd]] = {}
    for operation in operations:
        if isinstance(operation, CommitOperationAdd) and operation.path_in_repo.endswith(".parquet"):
            configs.setdefault(operation.path_in_repo.partition("/")[0], []).append(operation)

    for additions in configs.values() if len(configs) > 1 else ():
        api.preupload_lfs_files(repo_id, additions, repo_type=kind, revision=revision, create_pr=pull_request)

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


def is_released(repo_id: str, commit: str) -> bool:
    """Check that a commit of a dataset repository is on main or behind a tag, hence released by its
    owner.

    Anyone may open a pull request, whose commits the Hub serves under the owner's name.

    Args:
        repo_id: the repository.
        commit: id of the commit.

    Raises:
        Unavailable: the Hub could not be reached.
        BadInput: there is no such repository.
    """
    api = connect()
    with hub_errors(repo_id, "list its commits"):
        tags = with_retries(lambda: api.list_repo_refs(repo_id, repo_type="dataset").tags)
        for revision in ("main", *(tag.target_commit for tag in tags)):
            history = with_retries(lambda at=revision: api.list_repo_commits(repo_id, revision=at, repo_type="dataset"))  # type: ignore[misc]
            if any(entry.commit_id == commit for entry in history):
                return True

    return False
