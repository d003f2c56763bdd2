"""Which commit of a repository on the Hub is meant, and whether its owner stands for it. Nothing here is ever answered from a cache."""

from __future__ import annotations

from dataset_builders.hub.client import connect, hub_errors, with_retries


def resolve(repo_id: str, revision: str | None = None) -> str:
    """The commit (40 hex digits) that a branch, tag or commit of a dataset repository is now; `revision` None: main.

    `snapshot_download` answers from its cache where the Hub does not; a commit asked for here is asked of the Hub. Raises Unavailable
    where the Hub cannot be asked, BadInput where it knows no such repository or revision.
    """
    with hub_errors(repo_id, "look up its revision"):
        commit = with_retries(lambda: connect().repo_info(repo_id, revision=revision, repo_type="dataset").sha)
        if commit is None:
            raise AssertionError(f"{repo_id}: the Hub named no commit")
        return commit


def is_released(repo_id: str, commit: str) -> bool:
    """Whether a commit of a dataset repository is on main or behind a tag: only those are the owner's word.

    Anyone may open a pull request, whose commits the Hub serves under the owner's name. Raises as `resolve` does.
    """
    api = connect()
    with hub_errors(repo_id, "list its commits"):
        tags = with_retries(lambda: api.list_repo_refs(repo_id, repo_type="dataset").tags)
        for revision in ("main", *(tag.target_commit for tag in tags)):
            line = with_retries(lambda at=revision: api.list_repo_commits(repo_id, revision=at, repo_type="dataset"))  # type: ignore[misc]
            if any(each.commit_id == commit for each in line):
                return True
    return False
