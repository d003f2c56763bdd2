"""Conversation forms: the order of image and text in a turn, and whether the authors' system message precedes them.

The form is the same for every back end unless `--form` names another, it is part of the request, and its hash is over what is sent.
See also: the wording of the prompt (`prompts.py`), the chat template of a model (`models/local/model_inputs.py`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput


@dataclass(frozen=True, slots=True)
class Form:
    """`image_first`: the image precedes the text of its turn. `system`: include the system message that the benchmark's authors sent to
    API models (`EvalSpec.system`), if there was one."""

    name: str
    image_first: bool
    system: bool


FORMS = {
    form.name: form
    for form in (
        Form("image-first", image_first=True, system=False),
        Form("text-first", image_first=False, system=False),
        Form("image-first-system", image_first=True, system=True),
        Form("authors", image_first=False, system=True),
    )
}
"""`image-first`: the order in model cards and chat templates. `authors`: the way the benchmarks' authors called API models, text before
image (MediConfusion `Models/gpt.py`; ProbMed `gpt4v.py`), with their system message."""

DEFAULT_FORM = "image-first"


def get_form(name: str | None) -> Form:
    """The form of that name; the default for None. Raises BadInput for an unknown name."""
    form = FORMS.get(name or DEFAULT_FORM)
    if form is None:
        raise BadInput(f"--form {name}: not known. Available: {', '.join(FORMS)}.")
    return form


def form_hash(
    form: Form, systems: Sequence[str | None], with_image: bool, template: str | None, template_kwargs: dict[str, Any]
) -> str:
    """Hash of the conversation format without the prompt's text: roles, order of the parts, system messages (one per question type), and
    the chat template (with its arguments) that the user gave. Runs with equal hashes present the same prompt in the same way."""
    parts = ["image", "text"] if form.image_first else ["text", "image"]
    user = {"role": "user", "content": [part for part in parts if with_image or part == "text"]}
    conversations = [[*([{"role": "system", "content": text}] if text else []), user] for text in systems]
    document = {"conversations": conversations, "template": template, "template_kwargs": template_kwargs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
