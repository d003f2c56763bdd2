"""A results store on the loopback Hub and pull requests to it, for the verification tests."""

import json
from functools import cache

from huggingface_hub import CommitOperationAdd, CommitOperationDelete

from eval_harness.records.run import RunRecord
from eval_harness.store.submit import build_submission
from tests.localhub.accounts import READER

STORE = "ORG/results"
REPO = {"repo_id": STORE, "repo_type": "dataset"}


def main_files(api) -> dict[str, str]:
    return {f.path: f.blob_id for f in api.list_repo_tree(**REPO, recursive=True) if hasattr(f, "blob_id")}


def comments(api, number) -> list[str]:
    details = api.get_discussion_details(STORE, number, repo_type="dataset")
    return [event.content for event in details.events if event.type == "comment"]


def status(api, number) -> str:
    return api.get_discussion_details(STORE, number, repo_type="dataset").status


def pull_head(api, number) -> str:
    """Return the head commit of a pull request."""
    return api.repo_info(**REPO, revision=f"refs/pr/{number}").sha


def propose(api, files: dict[str, bytes], delete=(), token=READER) -> int:
    operations = [CommitOperationAdd(path, content) for path, content in files.items()]
    operations += [CommitOperationDelete(path) for path in delete]
    done = api.create_commit(operations=operations, commit_message="A result", create_pr=True, token=token, **REPO)
    return int(done.pr_num)


@cache
def _submission(run):
    return build_submission(run)


def submission_files(run, change=lambda run_json: None) -> dict[str, bytes]:
    """Return the files of a submission, with its run.json changed by the submitter."""
    files = _submission(run).files()
    (name,) = (path for path in files if path.endswith("run.json"))
    document = json.loads(files[name])
    change(document)
    files[name] = RunRecord.model_validate(document).to_json().encode()
    return files
