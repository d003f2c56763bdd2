"""Servers: an answer is an answer, trouble is never one, and the key stays where it was."""

import base64
import io
import json
import time
from random import Random

import pytest
from PIL import Image

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_parameters import thinking_forms
from eval_harness.models.http.in_flight import InFlight
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.http.server_errors import seconds_of, without_key
from eval_harness.models.interface import Request, Settings, Shot
from tests.chaos.server import FAULTS, ChaosServer, Raw, answer_to, completion

KEY = "sk-test-0123456789abcdef"


def picture(mode="RGB", format="PNG", size=(20, 12), colour=9):
    buffer = io.BytesIO()
    Image.new(mode, size, colour).save(buffer, format)
    return buffer.getvalue()


def request(number=0, **changes):
    values = {"sample": 0, "prompt": f"Question {number}?", "image": picture(), "options": ("left", "right")}
    return Request(str(number), **(values | {"question_type": "single"} | changes))


def model(server, **changes):
    backend = OpenAIChat("m", Settings(base_url=server.url, **({"timeout": 1.0} | changes)))
    backend.first_wait = 0.02
    return backend


def text_of(body):
    """The text of the last turn."""
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else next(part["text"] for part in content if part["type"] == "text")


def test_every_kind_of_trouble_ends_in_the_right_answer():
    requests = [request(i) for i in range(40)]
    with ChaosServer(FAULTS, hang=1.5) as server:
        backend = model(server, in_flight=8)
        found = list(backend.generate(requests))
        expected = {text_of(body): answer_to(body) for body in server.bodies}
    assert sorted(response.question_id for response in found) == sorted(r.question_id for r in requests)
    assert {f"Question {r.question_id}?": r.text for r in found} == expected
    assert {response.status for response in found} == {"answered"}
    assert set(server.faulted) == set(FAULTS)
    assert len(set(expected.values())) == 2


def test_the_number_in_flight_is_bounded_and_a_busy_server_is_asked_less():
    with ChaosServer(delay=0.02) as server:
        assert len(list(model(server, in_flight=3).generate([request(i) for i in range(20)]))) == 20
        assert 1 < server.most <= 3
    with ChaosServer(["429"], retry_after="0.3") as server:
        start = time.monotonic()
        list(model(server, in_flight=1).generate([request()]))
        assert time.monotonic() - start >= 0.3


def test_what_fails_for_good_is_failed_and_its_error_is_no_answer():
    def one_is_broken(body):
        text = text_of(body)
        return (500, {"error": {"message": "The answer is A"}}) if text == "Question 3?" else answer_to(body)

    with ChaosServer(answer=one_is_broken) as server:
        found = {r.question_id: r for r in model(server, in_flight=2).generate([request(i) for i in range(5)])}
    assert (found["3"].status, found["3"].text) == ("failed", "")
    assert "HTTP 500" in found["3"].error
    assert {r.status for i, r in found.items() if i != "3"} == {"answered"}


def test_a_server_that_is_gone_stops_the_run_in_one_line():
    with ChaosServer(answer=lambda body: (500, {"error": {"message": "down"}})) as server:
        backend = model(server)
        with pytest.raises(BadInput, match="run the same command again"):
            list(backend.generate([request(i) for i in range(30)]))
        assert len(server.asked) < 30


@pytest.mark.parametrize(("status", "words"), [(401, "refuses the key"), (404, "no such model")])
def test_a_refused_key_or_model_stops_at_once_and_never_shows_the_key(monkeypatch, status, words):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    message = f"Incorrect API key provided: {KEY}. Also sk-other-9876543210."
    with ChaosServer(answer=lambda body: (status, {"error": {"message": message}})) as server:
        with pytest.raises(BadInput, match=words) as error:
            list(model(server).generate([request(i) for i in range(3)]))
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(error.value)
    assert "9876543210" not in str(error.value)
    assert sum(server.asked.values()) <= 3


def test_a_missing_key_is_only_needed_away_from_this_machine(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for url in (None, "https://somewhere.example/v1"):
        with pytest.raises(BadInput, match="OPENAI_API_KEY is not set"):
            OpenAIChat("m", Settings(base_url=url))
    OpenAIChat("m", Settings(base_url="http://127.0.0.1:8000/v1"))


def test_filters_and_refusals_are_kept_as_refused():
    replies = [
        (400, {"error": {"message": "blocked by our content management policy", "code": "content_filter"}}),
        (200, completion(None, finish="content_filter")),
        (200, completion(None, refusal="I cannot look at this")),
    ]
    for reply in replies:
        with ChaosServer(answer=lambda body, reply=reply: reply) as server:
            (found,) = model(server).generate([request()])
            assert (found.status, found.text) == ("refused", "")
            assert found.error
            assert sum(server.asked.values()) == 1


def test_parameters_a_server_refuses_are_left_out_and_said():
    def picky(body):
        if "max_tokens" in body:
            return 400, {
                "error": {"message": "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."}
            }
        if "temperature" in body:
            return 400, {"error": {"message": "Unsupported value: 'temperature' does not support 0.0"}}
        if body["max_completion_tokens"] == 1:
            return 200, completion("", finish="length")
        return "B"

    with ChaosServer(answer=picky) as server:
        backend = model(server, in_flight=1)
        found = list(backend.generate([request(i, max_tokens=1) for i in range(3)]))
    assert [r.text for r in found] == ["B"] * 3
    assert len(backend.deviations) == 2
    assert len(backend.deviations) == 2
    assert any("reasoning" in words for words in backend.deviations)
    assert any("temperature" in words for words in backend.deviations)


def test_gd_reads_log_probabilities_and_says_when_an_option_is_not_among_them():
    questions = [request(candidates=("A", "B"))]
    with ChaosServer(
        answer=lambda body: (200, completion(" B", alternatives={" B": -0.1, "B": -3.0, "A": -4.0}))
    ) as server:
        (found,) = model(server).score(questions)
        assert server.bodies[0]["logprobs"] is True
    assert found.text == "B"
    assert found.scores[0] == pytest.approx(-4)
    assert found.scores[1] == pytest.approx(-0.0464, abs=1e-3)
    with ChaosServer(answer=lambda body: (200, completion("B", alternatives={"B": -0.1, "x": -9.0}))) as server:
        backend = model(server)
        (found,) = backend.score(questions)
    assert found.text == "B"
    assert "not among them" in backend.deviations[0]
    with ChaosServer() as server, pytest.raises(BadInput, match="no log-probabilities"):
        list(model(server).score(questions))
    with ChaosServer() as server, pytest.raises(BadInput, match="--method ps"):
        list(model(server).score([request(candidates=("left", "right"), scoring="sequence")]))


def test_images_are_sent_as_they_are_where_servers_can_read_them():
    cases = [
        (picture("RGB", "JPEG"), "image/jpeg", None),
        (picture("RGB", "PNG"), "image/png", None),
        (picture("I;16", "PNG", colour=40000), "image/png", None),
        (picture("RGB", "TIFF"), "image/png", None),
        (picture("RGB", "JPEG", size=(400, 100)), "image/png", 50),
    ]
    for image, kind, side in cases:
        with ChaosServer() as server:
            list(model(server, max_image_side=side).generate([request(image=image)]))
            url = server.bodies[0]["messages"][0]["content"][0]["image_url"]["url"]
        head, _, data = url.partition(",")
        assert head == f"data:{kind};base64"
        sent = Image.open(io.BytesIO(base64.b64decode(data)))
        assert max(sent.size) <= (side or 400)
        assert sent.mode in ("L", "RGB")
        if (kind, side) == ("image/jpeg", None):
            assert base64.b64decode(data) == image


def test_system_message_and_examples_are_turns_of_their_own():
    shots = (Shot("Q1?", "A", picture()), Shot("Q2?", "B", picture()))
    with ChaosServer() as server:
        list(model(server).generate([request(system="You are a student.", shots=shots)]))
    roles = [message["role"] for message in server.bodies[0]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert server.bodies[0]["messages"][0]["content"] == "You are a student."


@pytest.mark.parametrize("image_first", [True, False])
def test_image_and_text_stand_in_the_order_of_the_request(image_first):
    with ChaosServer() as server:
        list(model(server).generate([request(image_first=image_first, shots=(Shot("Q1?", "A", picture()),))]))
    orders = [[part["type"] for part in m["content"]] for m in server.bodies[0]["messages"] if m["role"] == "user"]
    assert orders == [["image_url", "text"] if image_first else ["text", "image_url"]] * 2


def test_what_the_user_adds_is_sent():
    extra = {"generation": {"top_p": 0.5}, "chat_template": "{{ x }}", "chat_template_kwargs": {"y": 1}}
    with ChaosServer() as server:
        list(model(server, **extra).generate([request()]))
    (body,) = server.bodies
    assert (body["top_p"], body["chat_template"], body["chat_template_kwargs"]) == (0.5, "{{ x }}", {"y": 1})


def test_tokens_are_counted():
    with ChaosServer() as server:
        found = list(model(server).generate([request(i) for i in range(3)]))
    assert [r.usage for r in found] == [(10, 2)] * 3


def test_leaving_early_stops_the_asking():
    with ChaosServer(delay=0.05) as server:
        answers = model(server, in_flight=2).generate([request(i) for i in range(200)])
        next(answers)
        answers.close()
        asked = sum(server.asked.values())
        time.sleep(0.3)
        assert sum(server.asked.values()) <= asked + 2 < 50


def test_waiting_times_are_read_in_either_form():
    assert seconds_of("2.5") == 2.5
    assert seconds_of("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert seconds_of(None) is None
    assert seconds_of("soon") is None
    assert seconds_of("nan") is None
    assert without_key(json.dumps({"k": KEY}), KEY) == '{"k": "[key]"}'


def test_a_price_gives_the_cost_of_what_was_counted():
    from eval_harness.models.interface import read_price
    from eval_harness.runs.rescoring import _usage

    records = [{"usage": [1000, 20]}, {"usage": [3000, 60]}, {"response": "no usage told"}]
    assert _usage(records, None) == {"tokens_in": 4000, "tokens_out": 80}
    assert _usage(records, [2.5, 10.0])["cost"] == 4000 * 2.5e-6 + 80 * 10e-6
    assert read_price("2.5,10") == (2.5, 10.0)
    for bad in ("2.5", "a,b", "1,2,3", "-1,2", "nan,1", "inf,1"):
        with pytest.raises(BadInput, match="--price"):
            read_price(bad)


FORMS_OF_ERRORS = {
    "openai": lambda name, words: {"error": {"message": words, "param": name, "code": "unsupported_parameter"}},
    "message": lambda name, words: {"error": {"message": words}},
    "error as text": lambda name, words: {"error": words},
    "detail as text": lambda name, words: {"detail": words},
    "detail as list": lambda name, words: {
        "detail": [{"type": "extra_forbidden", "loc": ["body", name], "msg": "Extra inputs are not permitted"}]
    },
    "vllm": lambda name, words: {"object": "error", "message": words, "type": "BadRequestError", "code": 400},
    "list": lambda name, words: [{"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}],
    "nested": lambda name, words: {
        "error": {"message": "Provider returned error", "metadata": {"raw": json.dumps({"error": {"message": words}})}}
    },
    "plain text": lambda name, words: words,
}


class Picky:
    """A server that takes none of `refused`, one complaint at a time, and says so in one form."""

    def __init__(self, refused, form, status=400):
        self.refused, self.form, self.status = refused, form, status
        self.complaints, self.taken = [], []

    def __call__(self, body):
        wrong = next((name for name in self.refused if name in body), None)
        if wrong is None:
            self.taken.append({name: value for name, value in body.items() if name != "messages"})
            return answer_to(body)
        self.complaints.append(text_of(body))
        return self.status, FORMS_OF_ERRORS[self.form](
            wrong, f"Unsupported parameter: '{wrong}' is not supported with this model."
        )


@pytest.mark.parametrize("form", FORMS_OF_ERRORS)
def test_what_a_server_takes_is_settled_before_other_questions_are_asked(form):
    """Seeded: which parameters are refused, with what status; 12 questions at 8 in flight."""
    random = Random(form)
    for _ in range(4):
        refused = random.sample(["max_tokens", "temperature", "seed", "chat_template_kwargs"], random.randrange(1, 5))
        picky = Picky(refused, form, random.choice([400, 422]))
        with ChaosServer(answer=picky, delay=0.005) as server:
            backend = model(server, in_flight=8, thinking="off")
            found = list(backend.generate([request(i, temperature=0.7, sample=1) for i in range(12)]))
        assert {r.status for r in found} == {"answered"}, found
        assert len(set(picky.complaints)) == 1, "one question alone met the refusals"
        assert len(picky.complaints) == len(refused)
        assert len({json.dumps(taken) for taken in picky.taken}) == 1, "all were asked with the same settings"
        assert len(server.asked) == 12
        assert sum(server.served.values()) == 12
        said = " ".join(backend.deviations)
        assert ("temperature" in said, "no seed" in said) == ("temperature" in refused, "seed" in refused)


def test_what_the_user_asked_for_is_never_left_out_in_silence():
    for settings, name in (
        ({"generation": {"top_k": 5}}, "top_k"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ({"generation": {"temperature": 0.3}}, "temperature"),
    ):
        with ChaosServer(answer=Picky([name], "openai")) as server, pytest.raises(BadInput, match=name.split("_")[0]):
            list(model(server, **settings).generate([request(i) for i in range(3)]))
    every = ["chat_template_kwargs", "reasoning_effort", "thinking", "reasoning"]
    with ChaosServer(answer=Picky(every, "vllm")) as server, pytest.raises(BadInput, match="--thinking 500"):
        list(model(server, thinking=500).generate([request()]))


def test_a_word_of_the_question_is_no_parameter():
    """A complaint about something else that happens to name one."""
    message = "Invalid image: the body temperature chart could not be read"
    with ChaosServer(answer=lambda body: (400, {"error": {"message": message, "param": "messages"}})) as server:
        backend = model(server)
        with pytest.raises(BadInput, match="body temperature chart"):
            list(backend.generate([request(i) for i in range(5)]))
        assert max(server.asked.values()) <= 2


def test_could_not_finish_fails_that_question_and_no_other():
    message = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens."

    def thinker(body):
        limit = body["max_tokens"]
        needed = 100_000 if text_of(body) == "Question 3?" else 8000
        return "B" if limit >= needed else (400, {"error": {"message": message, "type": "invalid_request_error"}})

    for first in (0, 3):
        with ChaosServer(answer=thinker) as server:
            backend = model(server, in_flight=4)
            numbers = [first, *(i for i in range(8) if i != first)]
            found = {r.question_id: r for r in backend.generate([request(i, max_tokens=1) for i in numbers])}
        assert {i: r.text for i, r in found.items() if i != "3"} == dict.fromkeys("0124567", "B")
        assert (found["3"].status, found["3"].text) == ("failed", "")
        assert "Could not finish" in found["3"].error
        assert any("16384 output tokens were allowed instead of 1" in words for words in backend.deviations)
    with ChaosServer(answer=thinker) as server:
        found = list(model(server, fixed_limit=True).generate([request(i, max_tokens=8000) for i in range(8)]))
        assert sum(r.status == "answered" for r in found) == 7
        assert {body["max_tokens"] for body in server.bodies} == {8000}


def test_an_output_limit_is_brought_into_what_the_server_takes():
    def bounded(body):
        limit = body.get("max_tokens")
        if limit < 16:
            return 400, {
                "error": {"message": "Invalid 'max_tokens': integer below minimum value. Expected a value >= 16."}
            }
        if limit > 8192:
            words = "max_tokens is too large: 16384. This model supports at most 8192 completion tokens."
            return 400, {"error": {"message": words, "param": "max_tokens"}}
        return "B" if limit > 1000 else (200, completion("", finish="length"))

    with ChaosServer(answer=bounded) as server:
        backend = model(server)
        found = list(backend.generate([request(i, max_tokens=1) for i in range(6)]))
    assert {r.text for r in found} == {"B"}
    assert backend.describe()["output_limit"] == 4096


REASONED = {
    "reasoning_content": {"content": "B", "reasoning_content": "It could be A. No."},
    "reasoning": {"content": "B", "reasoning": "It could be A. No."},
    "ollama": {"content": "B", "thinking": "It could be A. No."},
    "openrouter": {
        "content": "B",
        "reasoning_details": [{"type": "reasoning.text", "text": "It could be A. No.", "format": "x", "index": 0}],
    },
    "openrouter, twice": {
        "content": "B",
        "reasoning": "It could be A. No.",
        "reasoning_details": [{"type": "reasoning.summary", "summary": "It could be A. No."}],
    },
    "litellm": {
        "content": "B",
        "thinking_blocks": [{"type": "thinking", "thinking": "It could be A. No.", "signature": "s"}],
    },
    "anthropic": {"content": [{"type": "thinking", "thinking": "It could be A. No."}, {"type": "text", "text": "B"}]},
    "mistral": {
        "content": [
            {"type": "thinking", "thinking": [{"type": "text", "text": "It could be A. No."}]},
            {"type": "text", "text": "B"},
        ]
    },
    "in the text": {"content": "<think>It could be A. No.</think>B"},
    "opened by the template": {"content": "It could be A. No.</think>B"},
    "medgemma": {"content": "<unused94>thought\nIt could be A. No.<unused95>B"},
    "gemma": {"content": "<|channel>thought\nIt could be A. No.<channel|>B"},
}


@pytest.mark.parametrize("kind", REASONED)
def test_reasoning_and_answer_are_kept_apart(kind):
    message = dict(REASONED[kind])
    with ChaosServer(
        answer=lambda body: (200, completion(message.pop("content", None) or REASONED[kind]["content"], **message))
    ) as server:
        (found,) = model(server).generate([request()])
    assert (found.text.strip(), found.finish_reason) == ("B", "stop")
    assert "It could be A. No." in found.reasoning
    assert found.reasoning.count("It could be A") == 1


@pytest.mark.parametrize(
    "message",
    [
        {"content": "<think>It could be A. No, A, I"},
        {"content": None, "reasoning_content": "It could be A"},
        {"content": "", "reasoning": "It could be A"},
        {"content": [{"type": "thinking", "thinking": "It could be A"}]},
        {"content": "<unused94>thought\nIt could be A"},
    ],
)
def test_a_text_cut_inside_the_reasoning_is_no_answer(message):
    content = message["content"]
    rest = {name: value for name, value in message.items() if name != "content"}
    with ChaosServer(answer=lambda body: (200, completion(content, finish="length", **rest))) as server:
        backend = model(server, fixed_limit=True)
        (found,) = backend.generate([request(max_tokens=5)])
    assert (found.status, found.text.strip(), found.finish_reason) == ("answered", "", "length")
    assert "It could be A" in found.reasoning
    assert [body["max_tokens"] for body in server.bodies] == [5], "the user's limit is kept"


def test_whether_the_model_reasons_as_asked_is_said():
    thought = (200, completion("B", reasoning_content="hm"))
    for thinking, answer, words in (("off", thought, "asked not to"), ("on", "B", "shows no reasoning")):
        with ChaosServer(answer=lambda body, answer=answer: answer) as server:
            backend = model(server, thinking=thinking)
            list(backend.generate([request(max_tokens=20000)]))
        assert any(words in each for each in backend.deviations)
        assert server.bodies[0]["chat_template_kwargs"] == {
            "enable_thinking": thinking == "on",
            "thinking": thinking == "on",
        }


@pytest.mark.parametrize(
    ("host", "thinking", "sent"),
    [
        (None, 1000, {"reasoning_effort": "low"}),
        (None, "off", {"reasoning_effort": "none"}),
        ("https://openrouter.ai/api/v1", 9000, {"reasoning": {"max_tokens": 9000}}),
        ("https://openrouter.ai/api/v1", "off", {"reasoning": {"enabled": False}}),
        ("https://api.anthropic.com/v1/", 2000, {"thinking": {"type": "enabled", "budget_tokens": 2000}}),
        ("https://api.deepseek.com", "off", {"thinking": {"type": "disabled"}}),
        ("https://dashscope.aliyuncs.com/v1", 300, {"enable_thinking": True, "thinking_budget": 300}),
    ],
)
def test_known_hosts_are_told_to_reason_in_their_own_words(host, thinking, sent):
    assert thinking_forms(host, thinking)[0] == sent


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("127.0.0.1:8000/v1", "has no scheme"),
        ("localhost:8000/v1", "has no scheme"),
        ("api.example.org/v1", "has no scheme"),
        ("ftp://127.0.0.1/v1", "ftp is not spoken here"),
        ("http://", "names no host"),
        ("http://127.0.0.1:port/v1", "not an address"),
    ],
)
def test_an_address_that_is_none_is_told_as_such(url, words):
    with pytest.raises(BadInput, match=words):
        OpenAIChat("m", Settings(base_url=url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://127.0.0.1:9/v1", "nobody answers there"),
        ("http://no-such-host.invalid/v1", "cannot be resolved|nobody"),
    ],
)
def test_a_server_that_is_not_there_is_told_within_seconds(monkeypatch, url, words):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    start = time.monotonic()
    with pytest.raises(BadInput, match=f"no server can be reached: .*({words})"):
        list(OpenAIChat("m", Settings(base_url=url)).generate([request(i) for i in range(20)]))
    assert time.monotonic() - start < 8  # 2 to 4; more on a busy machine


PAGE = "<!DOCTYPE html><html><head><title>Sign in &amp; go on</title><style>x</style></head><body>A</body></html>"


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, PAGE, "a web page came .*Sign in & go on"),
        (407, "<html><body>Proxy <b>Authentication</b> Required</body></html>", "Proxy Authentication Required"),
        (404, PAGE, "a web page"),
        (401, '{"detail": "Not authenticated"}', "refuses the key .*Not authenticated"),
        (402, '{"error": {"message": "Insufficient credits"}}', "no credit left"),
        (
            429,
            '{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}',
            "no credit left",
        ),
        (
            400,
            '{"detail": [{"loc": ["body", "messages"], "msg": "System role not supported"}]}',
            "System role not supported",
        ),
        (422, "the template raised an exception", "the template raised"),
        (400, '[{"error": {"message": "image too small"}}]', "image too small"),
        (400, '"a text"', "a text"),
        (400, "", "no further words"),
    ],
)
def test_what_an_error_says_is_shown_in_whatever_form_it_comes(status, body, words):
    with ChaosServer(answer=lambda _: (status, Raw(body))) as server, pytest.raises(BadInput, match=words):
        list(model(server).generate([request(i) for i in range(4)]))


def test_a_web_page_instead_of_a_reply_is_told_soon():
    with ChaosServer(answer=lambda _: (200, Raw(PAGE, "text/html"))) as server:
        with pytest.raises(BadInput, match="Sign in & go on"):
            list(model(server).generate([request(i) for i in range(4)]))
        assert sum(server.asked.values()) == 3


def test_a_question_whose_image_cannot_be_decoded_fails_alone():
    with ChaosServer() as server:
        found = {
            r.question_id: r for r in model(server).generate([request(0), request(1, image=b"no image"), request(2)])
        }
    assert {i: r.status for i, r in found.items()} == {"0": "answered", "1": "failed", "2": "answered"}
    assert "image" in found["1"].error


def test_all_places_are_used_from_the_second_question_on():
    with ChaosServer(delay=2) as server:  # none of the 48 is answered before all of them can have come
        found = list(model(server, in_flight=48, timeout=60).generate(request(i) for i in range(1 + 48)))
    assert len(found) == 49
    assert server.most >= 40


def test_a_busy_server_is_asked_less_and_then_more_again():
    flight = InFlight(64)
    flight.now = 64
    for _ in range(5):
        flight.busy()
    assert flight.allowed == 32, "one burst of refusals is one piece of news"
    for _ in range(4):
        flight.now = int(flight.allowed) - 1
        for _ in range(flight.now):
            flight.answered()
    assert flight.allowed > 60


def test_a_server_with_a_limit_of_its_own_is_served_up_to_it():
    """It refuses whatever exceeds ten at a time: every question is answered, most of the time at its limit."""

    class Limited(ChaosServer):
        refused = 0

        def fault_for(self, question):
            self.refused += self.now > 10
            return "429" if self.now > 10 else None

    with Limited(delay=0.05, retry_after="0.05") as server:
        found = list(model(server, in_flight=40, timeout=10).generate(request(i) for i in range(200)))
    assert [r.status for r in found] == ["answered"] * 200
    assert server.refused < 300
