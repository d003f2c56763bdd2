"""Conversation forms: the order of image and text, and whether the authors' system message is sent.

The form is the same for every back end unless `--form` names another; it is part of the request,
and its hash covers what is sent. See also: the wording of prompts (`benchmarks/`), a model's chat
template (`models/local/model_inputs.py`).
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dataset_builders.errors import BadInput


@dataclass(frozen=True, slots=True)
class Form:
    """A conversation form.

    `image_first`: the image precedes the text of its turn. `system`: include the system message
    that the benchmark's authors sent to API models (`EvalSpec.system`), if they sent one.
    """

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
"""The available forms, by name.

`image-first` is the order in model cards and chat templates. `authors` is how the benchmarks'
authors called API models: text before image (MediConfusion `Models/gpt.py`; ProbMed `gpt4v.py`),
with their system message.
"""

DEFAULT_FORM = "image-first"


def get_form(name: str | None) -> Form:
    """Return the form of this name; None means the default.

    Raises:
        BadInput: an unknown name.
    """
    form = FORMS.get(name or DEFAULT_FORM)
    if form is None:
        raise BadInput(f"--form {name}: unknown. Available: {', '.join(FORMS)}.")
    return form


def form_hash(
    form: Form, systems: Sequence[str | None], with_image: bool, template: str | None, template_kwargs: dict[str, Any]
) -> str:
    """Hash the conversation format, without the prompt's text.

    Runs with equal hashes present the same prompt in the same way.

    Args:
        form: order of the parts.
        systems: system messages, one per question type.
        with_image: True if an image is sent.
        template: the user's chat template, if any.
        template_kwargs: its arguments.

    Returns:
        16 hexadecimal digits.
    """
    parts = ["image", "text"] if form.image_first else ["text", "image"]
    user = {"role": "user", "content": [part for part in parts if with_image or part == "text"]}
    conversations = [[*([{"role": "system", "content": text}] if text else []), user] for text in systems]
    # Roles and parts, not texts: two prompts in the same format have one hash.
    document = {"conversations": conversations, "template": template, "template_kwargs": template_kwargs}
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]
