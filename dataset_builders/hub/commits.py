"""Make a commit on the Hub, and check that one was released by the repository's owner. Never answered from a cache."""

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
    """Write these files (None: delete it) in one commit, whole or not at all.

    `parent`: the commit that the files were computed from; the Hub refuses (412) when another came in between; compute the files
    anew then. `revision`: a branch or pull request other than main. `pull_request`: open one instead of writing to main.
    """
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    operations = [
        CommitOperationDelete(path)
        if content is None
        else CommitOperationAdd(path, str(content) if isinstance(content, Path) else content)
        for path, content in sorted(files.items(), key=lambda item: (item[1] is not None, item[0]))
    ]
    # The images of `cases` are in `questions`, too. hf_xet finds again what an upload before has sent, and not what the same one sends.
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
    """True for a commit of a dataset repository on main or behind a tag: only these are released by the owner.

    Anyone may open a pull request, whose commits the Hub serves under the owner's name. Raises Unavailable
    where the Hub cannot be asked, BadInput where it has no such repository.
    """
    api = connect()
    with hub_errors(repo_id, "list its commits"):
        tags = with_retries(lambda: api.list_repo_refs(repo_id, repo_type="dataset").tags)
        for revision in ("main", *(tag.target_commit for tag in tags)):
            line = with_retries(lambda at=revision: api.list_repo_commits(repo_id, revision=at, repo_type="dataset"))  # type: ignore[misc]
            if any(each.commit_id == commit for each in line):
                return True
    return False
