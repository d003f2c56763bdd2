"""Scoring options by their own tokens through a server: equal to the definition, from no other
tokens.
"""

import hashlib
import json
import math
import re
from random import Random

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_requests import build_messages
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import model, request

TOKEN_PATTERN = re.compile(r"<\w+>\n?|\s?\w{1,4}|.|\n", re.DOTALL)


class ScoringServer:
    """A server that scores tokens like vLLM's, for a made-up model with known log-probabilities.

    `template`: text before an answer. `trims`: whether the server strips a begun answer. `change`:
    applied to every reply, to corrupt it.
    """

    def __init__(self, template="<model>\n", trims=False, change=lambda document, body: document):
        self.template, self.trims, self.change = template, trims, change
        self.vocabulary: list[str] = []
        # Endpoints next to /v1, as vLLM's server has them.
        self.server = ChaosServer(answer=self.answer)
        self.server.further = {
            "tokenize": lambda body: {"tokens": self.ids(body["prompt"])},
            "detokenize": lambda body: {"prompt": "".join(self.vocabulary[token] for token in body["tokens"])},
        }

    def __enter__(self):
        self.server.__enter__()
        return self

    def __exit__(self, *_):
        self.server.__exit__()

    def ids(self, text):
        # A token is up to four letters with their space, so that options have several tokens.
        pieces = TOKEN_PATTERN.findall(text)
        self.vocabulary += [piece for piece in dict.fromkeys(pieces) if piece not in self.vocabulary]
        return [self.vocabulary.index(piece) for piece in pieces]

    def logprob(self, prompt, token):
        """Return the log-probability of a token after a prompt."""
        text = " ".join(self.vocabulary[index] for index in (*prompt, token))
        # Derived from a hash: reproducible, and different for every prompt.
        return -0.01 - hashlib.sha256(text.encode()).digest()[0] / 16

    def prompt(self, body):
        """Return the token ids of a conversation; an image is three tokens."""
        text = ""
        for message in body["messages"]:
            if message["role"] == "assistant":
                assert body["continue_final_message"]
                assert not body["add_generation_prompt"]
                answer = message["content"].strip() if self.trims else message["content"]
                return self.ids(text) + self.ids(self.template) + self.ids(answer)
            parts = message["content"] if isinstance(message["content"], list) else [message["content"]]
            for part in parts:
                digest = hashlib.sha256(str(part).encode()).hexdigest()[:4]
                text += part if isinstance(part, str) else part.get("text", f"<{digest}><{digest}><{digest}>")
        return self.ids(text) + self.ids(self.template)

    def answer(self, body):
        ids = self.prompt(body)
        document = completion("x", finish="length") | {"prompt_token_ids": ids}
        if "prompt_logprobs" in body:
            positions = [{str(ids[at]): {"logprob": self.logprob(ids[:at], ids[at])}} for at in range(1, len(ids))]
            document["prompt_logprobs"] = [None, *positions]
        if "logprob_token_ids" in body:
            top = [
                {"token": f"token_id:{token}", "logprob": self.logprob(ids, token)}
                for token in body["logprob_token_ids"]
            ]
            document["choices"][0]["logprobs"] = {
                "content": [{"token": "token_id:0", "logprob": -9.0, "top_logprobs": top}]
            }
        return 200, self.change(document, body)

    def expected(self, question, candidates, scoring, space=""):
        """Compute the scores by definition. `question`: the body sent without an answer."""
        prompt = self.prompt(question)
        if scoring == "next_token":
            forms = [{self.ids(text)[0], self.ids(f" {text}")[0]} for text in candidates]
            return [math.log(sum(math.exp(self.logprob(prompt, token)) for token in form)) for form in forms]
        tokens = [self.ids(space + text) for text in candidates]
        if scoring == "sequence_official":
            return [
                sum(self.logprob(prompt, token) for token in option_tokens) / len(option_tokens)
                for option_tokens in tokens
            ]
        return [
            sum(self.logprob(prompt + option_tokens[:at], token) for at, token in enumerate(option_tokens))
            / len(option_tokens)
            for option_tokens in tokens
        ]


OPTION_WORDS = (
    "left",
    "right",
    "pleural effusion",
    "no",
    "yes",
    "café",
    "3 mm",
    "lower lobe of the left lung",
    "x",
)
SCORINGS = ("next_token", "sequence", "sequence_official")


def scored(stand_in, scoring, questions):
    backend = model(stand_in.server)
    responses = list(backend.score([question(i, scoring, options) for i, options in enumerate(questions)]))
    return backend, {response.question_id: response for response in responses}


def question(number, scoring, options):
    return request(number, candidates=options, options=options, scoring=scoring)


def drawn(seed, count=6):
    chance, distinct = (
        Random(seed),
        [word for word in OPTION_WORDS if word != "lower lobe of the left lung"],
    )
    return [tuple(chance.sample(distinct, chance.randint(2, 4))) for _ in range(count)]


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize(("template", "trims", "space"), [("<model>\n", False, ""), ("<m>:", False, " ")])
def test_scores_equal_the_definition_for_the_options_own_tokens(scoring, template, trims, space):
    # Without a fixed hash seed, every test run draws other options.
    questions = drawn(hash((scoring, template)) % 97)
    with ScoringServer(template, trims) as stand_in:
        backend, responses = scored(stand_in, scoring, questions)
        for number, options in enumerate(questions):
            body = {"messages": build_messages(question(number, scoring, options), None)}
            expected = stand_in.expected(body, options, scoring, space)
            assert responses[str(number)].scores == pytest.approx(expected, abs=1e-9)
            assert responses[str(number)].usage == (
                (10, 2) if scoring != "sequence" else (10 * len(options), 2 * len(options))
            )
    assert backend.describe()["options_scored_by"] == "their tokens"
    assert not backend.deviations


def test_template_that_opens_reasoning_is_recorded_as_a_deviation():
    with ScoringServer("<model>\n<think>\n") as stand_in:
        backend, _ = scored(stand_in, "sequence", drawn(3))
    assert any("begun the model's reasoning" in words for words in backend.deviations)


def without(name):
    return lambda document, body: {key: value for key, value in document.items() if key != name}


def no_named_tokens(document, body):
    for choice in document["choices"]:
        choice.pop("logprobs", None)
    return document


@pytest.mark.parametrize("scoring", ["sequence", "sequence_official"])
def test_server_that_cannot_score_options_is_refused_before_any_question(scoring):
    lacking = {
        "return_token_ids": ScoringServer(change=without("prompt_token_ids")),
        "prompt_logprobs": ScoringServer(change=without("prompt_logprobs")),
        "logprob_token_ids": ScoringServer(change=no_named_tokens),
        "as different tokens": ScoringServer("<m>:", trims=True),
    }
    by_sequence = ("prompt_logprobs", "as different tokens")
    for words, stand_in in lacking.items():
        if words != "return_token_ids" and (words in by_sequence) != (scoring == "sequence"):
            continue
        with stand_in, pytest.raises(BadInput, match=words):
            scored(stand_in, scoring, drawn(5))
        # Only the probe was sent.
        assert not any("Question" in json.dumps(body) for body in stand_in.server.bodies)
    for endpoints in ({}, {"tokenize": lambda body: ["no object, as a gateway's page is none"]}):
        with ChaosServer() as server, pytest.raises(BadInput, match="no /tokenize"):
            server.further = endpoints
            list(model(server).score([question(0, scoring, ("left", "right"))]))
        assert not server.bodies


def shifted(document):
    document["prompt_logprobs"] = [None, *document["prompt_logprobs"]]


def of_other_tokens(document):
    document["prompt_logprobs"][-1] = {"999999": {"logprob": -0.1}}


def not_a_number(document):
    [entry] = document["prompt_logprobs"][-1].values()
    entry["logprob"] = None


def merged(document):
    document["prompt_token_ids"][-2:] = [999_999]
    document["prompt_logprobs"][-2:] = [{"999999": {"logprob": -0.1}}]


def another_prompt(document):
    document["prompt_token_ids"][0] += 1


def without_a_named_token(document):
    document["choices"][0]["logprobs"]["content"][0]["top_logprobs"].pop()


REPLY_CORRUPTIONS = [
    shifted,
    of_other_tokens,
    not_a_number,
    merged,
    another_prompt,
    without_a_named_token,
]


@pytest.mark.parametrize("lie", REPLY_CORRUPTIONS)
def test_reply_about_other_tokens_fails_only_its_question(lie):
    questions = [("left", "right"), ("no", "pleural effusion"), ("yes", "no")]

    def change(document, body):
        text = json.dumps(body["messages"])
        # Corrupt the replies to one question only.
        if "Question 1" in text and ("pleural" in text or lie is without_a_named_token):
            lie(document)
        return document

    with ScoringServer(change=change) as stand_in:
        _, responses = scored(stand_in, "next_token" if lie is without_a_named_token else "sequence", questions)
    assert {key: reply.status for key, reply in responses.items()} == {
        "0": "answered",
        "1": "failed",
        "2": "answered",
    }
    assert responses["1"].scores is None
    assert "token" in responses["1"].error
