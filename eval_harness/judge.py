"""The LLM fall-back: a judge model reads what our rules leave unread (GMAI-MMBench), or says which option free text is closer to
(MediConfusion, method `ff`). Any OpenAI-compatible server; answers are cached on disk; its share is reported.

See also: our own reader (`answers.py`), which always comes first; asking the model under test (`models/http/openai_chat.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from dataset_builders.errors import BadInput
from dataset_builders.files import replace_file
from dataset_builders.schema import LETTERS
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.reader import Reading
from eval_harness.records.request import Request

GAP = 3
"""MediConfusion's score gap: the closer option counts only where it leads by so much (paper A.4); its best-of-N oracle uses 2."""
WORKERS = 8
REPLY_TOKENS = 1024
"""Output tokens allowed to the judge's reply; one that reasons gets more."""

_SYSTEM = "You are a helpful and precise assistant for checking the quality of the answer."
_FEEDBACK = (
    "We would like to request your feedback on the performance of an AI assistant in response to the user question displayed above. "
    "The user asks the question on observing an image. We have provided two possible answers, [Answer A] and [Answer B] to the question. "
    "Your job is to evaluate how close the AI assistant's answer is to each of the answers. You don't have to decide whether the answers "
    "are correct or not. Each answer should receive an overall score on a scale of 1 to 10, where a higher score indicates the AI "
    "assistant's answer is closer to the specific answer. After providing the scores, concisely provide your explanation for the given "
    "scores. Remember, you don't need to comment on the correctness of the answers. Please provide your answer in the following format:\n"
    "A: <SCORE>\nB: <SCORE>\nYour explanation: <EXPLANATION>"
)
"""MediConfusion's free-form judge, system message and prompt: appendix A.4, line breaks as the authors' prompt file (`conversion`)."""
FREE_FORM_TEMPERATURE = 0.7

_EXTRACT = (
    "A model was asked a multiple-choice question about a medical image. Say which option its response chooses. Judge only what the "
    "response says; do not answer the question yourself.\n\nQuestion: {question}\n{options}\n\nResponse:\n{response}\n\n"
    "Reply with the letter of the option chosen and nothing else{several}. Reply with Z if the response chooses no option, "
    "more than one without deciding, or refuses."
)


@dataclass(frozen=True, slots=True)
class Report:
    """What the judge did, for the result's `method.judge`: rows it was asked about, their share of all, how many it decided or failed."""

    model: str
    prompt: str
    rows: int
    asked: int
    decided: int
    failed: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": self.prompt,
            "asked": self.asked,
            "share": round(100 * self.asked / self.rows, 4) if self.rows else 0.0,
            "decided": self.decided,
            "failed": self.failed,
        }


@dataclass(frozen=True, slots=True)
class Query:
    """What a judge is asked. `turn` tells repeated askings of the same prompt apart."""

    prompt: str
    system: str | None = None
    temperature: float = 0.0
    turn: int = 0


class Judge:
    """A judge model behind an OpenAI-compatible server, its replies cached under `cache` (one small JSON file per question asked)."""

    def __init__(self, model: str, cache: Path, base_url: str | None = None) -> None:
        self.model = model.removeprefix("openai:")
        self.cache = cache
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self._settings = Settings(base_url=self.base_url, in_flight=WORKERS)
        self._server: OpenAIChat | None = None

    @property
    def server(self) -> OpenAIChat:
        """Its server, looked for when something is asked that the cache does not hold."""
        if self._server is None:
            self._server = OpenAIChat(self.model, self._settings, called=f"--judge {self.model}")
        return self._server

    def replies(self, queries: Sequence[Query]) -> list[str | None]:
        """The judge's reply to each, many queries at a time; None where the server gave none after all tries.

        Raises BadInput when the server cannot be reached, refuses the key or the model, or has gone.
        """
        paths = [self._path(each) for each in queries]
        found = {path: _kept(path) for path in paths}
        new = {path.stem: (path, each) for path, each in zip(paths, queries, strict=True) if found[path] is None}
        requests = [
            Request(name, each.turn, each.prompt, None, (), "single", **_how(each)) for name, (_, each) in new.items()
        ]
        for response in self.server.generate(requests) if requests else ():
            if response.status == "answered":
                path = new[response.question_id][0]
                found[path] = response.text
                self.cache.mkdir(parents=True, exist_ok=True)
                kept = json.dumps({"model": self.model, "reply": response.text}, ensure_ascii=False)
                replace_file(path, kept.encode("utf-8", "replace"))
        return [found[path] for path in paths]

    def ask(self, query: Query) -> str | None:
        """The reply to one question. Raises BadInput as `replies` does."""
        return self.replies([query])[0]

    def _path(self, query: Query) -> Path:
        values = [self.model, self.base_url, query.system, query.prompt, query.temperature, query.turn]
        key = json.dumps(values, ensure_ascii=False).encode("utf-8", "replace")
        return self.cache / f"{hashlib.sha256(key).hexdigest()}.json"


def _kept(path: Path) -> str | None:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["reply"])
    except (OSError, ValueError, KeyError):
        return None


def _how(query: Query) -> dict[str, Any]:
    return {"system": query.system, "temperature": query.temperature, "max_tokens": REPLY_TOKENS}


def read_with_judge(
    answers: pd.DataFrame,
    questions: pd.DataFrame,
    method: str,
    judge: Judge,
    extraction: str = "ours",
) -> tuple[pd.DataFrame, Report]:
    """Let the judge read answers that `read_answers` has been through; the rows with `choice, status, rule` updated, and the report.

    Free form (`method` `ff`): every response that is there is scored against the two options (for `official`, the authors' strict
    reading of the judge's reply). Otherwise only responses that no rule could read are shown to it. A response for which the judge
    gave no reply stays as it was. The judge never sees the key.
    Raises BadInput when the server cannot be reached, or free form is asked for questions without exactly two options.
    """
    question_of = questions.set_index(questions["question_id"].astype(str))
    free_form = method == "ff"
    shown = {"answered", "irrelevant", "refused"} if free_form else {"irrelevant"}
    rows = [
        row_index
        for row_index, (status, response) in enumerate(zip(answers["status"], answers["response"], strict=True))
        if status in shown and isinstance(response, str) and response.strip()
    ]

    prompts: list[Query] = []
    readers: list[Callable[[str], Reading]] = []
    for row_index in rows:
        row = answers.iloc[row_index]
        question = question_of.loc[str(row["question_id"])]
        text, said = str(question["question"]), str(row["response"])
        options = [str(each) for each in question["options"]]
        if free_form:
            turn = int(row["sample"]) if "sample" in answers.columns else 0
            prompts.append(closeness_prompt(text, options, said, turn))
            readers.append(partial(read_closeness, extraction=extraction))
        else:
            kind = str(question["question_type"])
            prompts.append(extraction_prompt(text, options, said, kind))
            readers.append(partial(read_extraction, options=len(options), question_type=kind))
    readings = [
        None if reply is None else read(reply) for reply, read in zip(judge.replies(prompts), readers, strict=True)
    ]
    done = answers.copy()
    choice, status, rule = (done[name].tolist() for name in ("choice", "status", "rule"))
    for row_index, reading in zip(rows, readings, strict=True):
        if reading is not None:
            choice[row_index], status[row_index], rule[row_index] = list(reading.choice), reading.status, reading.rule
    done["choice"] = pd.Series(choice, index=done.index, dtype=object)
    done["status"], done["rule"] = status, rule
    decided = sum(reading is not None and bool(reading.choice) for reading in readings)
    failed = sum(reading is None for reading in readings)
    name = "mediconfusion-ff" if free_form else "extract-option"
    return done, Report(judge.model, name, len(answers), len(rows), decided, failed)


def extraction_prompt(question: str, options: Sequence[str], response: str, question_type: str) -> Query:
    """Which option(s) does a response choose?"""
    lines = "\n".join(f"{letter}. {option}" for letter, option in zip(LETTERS, options, strict=False))
    several = ", or the letters separated by commas where it chooses several" if question_type == "multiple" else ""
    return Query(_fill(_EXTRACT, question=question, options=lines, response=response[:8000], several=several))


def read_extraction(reply: str, options: int, question_type: str) -> Reading:
    """The option(s) that the judge's reply names: letters and nothing else."""
    letters = re.fullmatch(r"[\s\"'(\[*.]*([A-Z](?:\s*(?:,|and)\s*[A-Z])*)[\s\"')\].*]*", reply)
    indices = sorted({LETTERS.index(letter) for letter in re.findall(r"\b[A-Z]\b", letters[1])}) if letters else []
    if not indices or indices[-1] >= options or (len(indices) > 1 and question_type != "multiple"):
        return Reading((), "irrelevant", "judge: no option")
    return Reading(tuple(indices), "answered", "judge: option")


def closeness_prompt(question: str, options: Sequence[str], response: str, turn: int = 0) -> Query:
    """How close is a free response to each of two options, of 10 points (MediConfusion, appendix A.4)? Raises BadInput for others."""
    if len(options) != 2:
        raise BadInput(f"method ff: the judge compares two options, and this question has {len(options)}.")
    prompt = (
        f"[Question]\n{question}\n\n[Answer A]\n{options[0]}\n\n[Answer B]\n{options[1]}\n\n"
        f"[AI Assistant]\n{response}\n\n[End of AI Assistant]\n\n[System]\n{_FEEDBACK}\n\n"
    )
    return Query(prompt, _SYSTEM, FREE_FORM_TEMPERATURE, turn)


def read_closeness(reply: str, gap: float = GAP, extraction: str = "ours") -> Reading:
    """The option that the judge finds closer by at least `gap` points."""
    scores = _official_scores(reply) if extraction == "official" else _scores(reply)
    if scores is None:
        return Reading((), "irrelevant", "judge: no scores")
    if abs(scores[0] - scores[1]) < gap:
        return Reading((), "irrelevant", "judge: gap too small")
    return Reading((0 if scores[0] > scores[1] else 1,), "answered", "judge: closer option")


_SCORE = re.compile(r"^\W*(?:answer\s*)?([AB])\W{0,4}[:=]\W*(?:score\W*)?(\d+(?:\.\d+)?)", re.IGNORECASE | re.MULTILINE)


def _scores(reply: str) -> tuple[float, float] | None:
    """Both scores, wherever they stand in the reply; None unless each is given once and lies in 0..10."""
    found = [(match[1].upper(), float(match[2])) for match in _SCORE.finditer(reply)]
    scores = dict(found)
    if len(found) != 2 or set(scores) != {"A", "B"} or max(scores.values()) > 10:
        return None
    return scores["A"], scores["B"]


def _official_scores(reply: str) -> tuple[float, float] | None:
    """As the authors read it: whole numbers in the first two lines, "A: 7" and "B: 3"; anything else stops their program."""
    lines = reply.replace("\n\n", "\n").split("\n")
    try:
        return float(int(lines[0].replace("A: ", ""))), float(int(lines[1].replace("B: ", "")))
    except (ValueError, IndexError):
        return None


def _fill(template: str, **fields: str) -> str:
    """Fill a template in one pass, so that braces in a question or a response stay as they are."""
    return re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], template)
