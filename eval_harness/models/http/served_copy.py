"""Does a server of the same model say what this process says? Three small questions, asked both ways (`--served-at URL`).

A server may use another chat template, other image sizes or another precision; its texts then differ from the first token on, or late.
See also: the questions, and the other paths that are compared when a model is loaded (`self_test.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from eval_harness.models.interface import Request, Response, Settings


def compare_with_server(
    generate: Callable[[Sequence[Request]], Iterator[Response]],
    name: str,
    settings: Settings,
    questions: Sequence[Request],
    reasons: bool,
) -> str:
    """ "equal", or how many texts differ and the first of them. `reasons`: the chat template begins a reasoning, which says nothing of
    itself in a text that is cut.

    Raises BadInput where the server cannot be reached or does not know the model.
    """
    from eval_harness.models.http.openai_chat import OpenAIChat

    server = OpenAIChat(name, replace(settings, base_url=settings.served_at, fixed_limit=True, generation={}))
    server.reasons = reasons
    here, there = (
        {response.question_id: _said(response) for response in answers(questions)}
        for answers in (generate, server.generate)
    )
    different = [key for key, text in here.items() if there[key] != text]
    if not different:
        return "equal"
    first = different[0]
    return f"{len(different)} of {len(questions)} texts differ (here {here[first]!r}, there {there[first]!r})"


def _said(response: Response) -> str:
    return response.error or f"{response.reasoning or ''}{response.text}".strip()
