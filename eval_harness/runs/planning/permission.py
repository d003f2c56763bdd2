"""Custom sets hold a hospital's own images: before any of them is sent to another machine, the user is asked.

See also: which addresses stay on this machine (`models/http/sending.py`); `curate`, which asks the same way.
"""

from __future__ import annotations

from eval_harness.models.http.client import PROVIDER, server_address
from eval_harness.models.http.sending import permit_sending
from eval_harness.runs.planning.dry_run import size_of
from eval_harness.runs.planning.plan import Plan


def check_sending(plan: Plan) -> None:
    """Raise BadInput, before anything is sent, where a run would send a custom set's questions or answers to a model that is not on this
    machine and `--send-to-provider` was not given; say on stderr what is sent where it was."""
    repository, config = plan.selection.repository, plan.config
    if repository.origin != "custom" or repository.name == repository.family:
        return  # published by its authors, or drawn by us

    def questions() -> str:
        size = size_of(plan, images=0)
        return f"up to {size.requests:,} prompts of {repository.name} ({size.characters:,} characters) with {size.images:,} images"

    if plan.backend.is_api:
        address = getattr(plan.backend, "base_url", PROVIDER)
        permit_sending(plan.backend.model.name, address, questions, config.send_to_provider)
    if config.judge:
        answers = f"up to {len(plan.instances):,} answers to questions of {repository.name}, with the questions"
        address = server_address(config.judge, config.settings.base_url)
        permit_sending(f"--judge {config.judge}", address, lambda: answers, config.send_to_provider)
