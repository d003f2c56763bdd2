"""A server that scores tokens like vLLM's, for a made-up model with known log-probabilities."""

import hashlib
import math
import re

from tests.chaos.server import ChaosServer, completion

TOKEN_PATTERN = re.compile(r"<\w+>\n?|\s?\w{1,4}|.|\n", re.DOTALL)


class ScoringServer:
    """`template`: text before an answer.

    `trims`: whether the server strips a begun answer. `change`: applied to every reply, to corrupt
    it.
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
