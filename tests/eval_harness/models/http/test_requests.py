"""What is sent to a server, and how: proxies, redirects, certificates and requests that must stay
local; images, turns and parameters, of which the user's own are never dropped; never more than N
requests in flight, and N from the second question on.

See also: negotiation with servers that reject parameters (`tests/chaos`).
"""

import base64
import contextlib
import datetime
import io
import ipaddress
import itertools
import json
import socket
import ssl
import threading
import time
from random import Random

import pytest
from PIL import Image

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_client import remote_host
from eval_harness.models.http.chat_requests import thinking_parameters
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from eval_harness.records.request import Shot
from tests.chaos.server import ChaosServer, completion
from tests.eval_harness.models.http.asking import KEY, ask_server, model, picture, request, text_of
from tests.sampling import few

REPLY_BODY = b'{"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}]}'
OK_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
    len(REPLY_BODY),
    REPLY_BODY,
)


@contextlib.contextmanager
def answering(reply=OK_RESPONSE, tls=None):
    """Serve the same reply on every connection; yields (port, request heads received)."""
    heads = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with contextlib.suppress(OSError), connection:
                        stream = tls.wrap_socket(connection, server_side=True) if tls else connection
                        came = stream.recv(65536)
                        head, _, body = came.partition(b"\r\n\r\n")
                        length = int((head.lower().split(b"content-length:")[1:] or [b"0"])[0].split(b"\r\n")[0])
                        while len(body) < length:
                            body += stream.recv(65536)
                        heads.append(head.decode("latin-1"))
                        stream.sendall(reply)
                        stream.close()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], heads


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    # The machine that runs the tests may be behind a proxy.
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name in ("OPENAI_BASE_URL", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)


def ask(url, **settings):
    (response,) = OpenAIChat("m", Settings(**({"base_url": url, "timeout": 20.0} | settings))).generate([request()])
    return response.text


def test_proxy_from_the_environment_is_used_with_its_password(monkeypatch):
    with answering() as (port, heads):
        monkeypatch.setenv("HTTP_PROXY", f"http://me:p%40ss@127.0.0.1:{port}")
        assert ask("http://models.example.org/v1") == "A"
    assert heads[0].startswith("POST http://models.example.org/v1/chat/completions HTTP/1.1\r\n")
    # Base64 of me:p@ss, in lower case.
    assert "proxy-authorization: basic bwu6cebzcw==" in heads[0].lower()


def test_proxy_refusal_is_reported_and_the_proxy_gets_no_key(monkeypatch):
    with answering(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n") as (
        port,
        heads,
    ):
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(BadInput, match="the proxy refuses the connection"):
            ask("https://models.example.org/v1")
    assert heads[0].startswith("CONNECT models.example.org:443 ")
    # CONNECT is in plain text: the key must not be in it.
    assert "authorization" not in heads[0].lower()
    monkeypatch.setenv("HTTPS_PROXY", "ftp://127.0.0.1:1")
    with pytest.raises(BadInput, match="proxy"):
        ask("https://models.example.org/v1")


HOSTS = ("127.0.0.1", "localhost")
PROXIES = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", None)
NO_PROXY_VALUES = (
    "",
    "*",
    "127.0.0.1",
    "localhost",
    "127.0.0.1,localhost",
    ".localhost",
    "127.0.0.0/8",
    "example.org",
)
PROXY_CASES = Random(0).sample(list(itertools.product(HOSTS, PROXIES, NO_PROXY_VALUES)), 20)


@pytest.mark.parametrize(("host", "variable", "spared"), few(PROXY_CASES, 4))
def test_remote_host_agrees_with_where_requests_arrive(monkeypatch, host, variable, spared):
    """For combinations of address, proxy variable and exemption, `remote_host` must agree with
    where the request arrives.
    """
    with answering() as (server, direct), answering() as (proxy, proxied):
        if variable:
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy}")
        monkeypatch.setenv("NO_PROXY", spared)
        url = f"http://{host}:{server}/v1"
        assert ask(url) == "A"
        # Count only requests to this server: other programs may still connect to a port that they
        # knew.
        arrived = tuple(sum(f":{server}" in head for head in heads) for heads in (direct, proxied))
        stays = remote_host(url) is None
        assert arrived == (1, 0) or not stays
        if "/" not in spared:  # for exempted networks, `remote_host` may err on the safe side
            assert arrived == ((1, 0) if stays else (0, 1))


@pytest.mark.parametrize("status", few([307, 302, 308]))
def test_redirects_are_not_followed(status):
    with answering() as (elsewhere, reached):
        location = f"Location: http://127.0.0.1:{elsewhere}/v1/chat/completions".encode()
        moved = b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n%s\r\n\r\n" % (status, location)
        with (
            answering(moved) as (port, heads),
            pytest.raises(BadInput, match=f"redirects to .*HTTP {status}"),
        ):
            ask(f"http://127.0.0.1:{port}/v1")
    assert heads
    assert not reached


def test_cookies_are_not_sent_back():
    with answering(OK_RESPONSE.replace(b"\r\n\r\n", b"\r\nSet-Cookie: a=\xff\r\nSet-Cookie: b=1\r\n\r\n", 1)) as (
        port,
        heads,
    ):
        backend = OpenAIChat("m", Settings(base_url=f"http://127.0.0.1:{port}/v1", in_flight=1))
        assert [response.text for response in backend.generate([request(i) for i in range(3)])] == ["A"] * 3
    assert len(heads) == 3 and "cookie" not in "".join(heads).lower()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """(file of a certificate that is its own authority, TLS context of its server)."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    today, folder = datetime.datetime.now(datetime.UTC), tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "server")])
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(1))
        .not_valid_after(today + datetime.timedelta(1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "server.pem").write_bytes(signed.public_bytes(pem))
    (folder / "server.key").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "server.pem", folder / "server.key")
    return folder / "server.pem", tls


def test_private_certificate_authority_is_trusted_only_if_configured(certificate, monkeypatch):
    authority, tls = certificate
    with answering(tls=tls) as (port, heads):
        url = f"https://127.0.0.1:{port}/v1"
        with pytest.raises(BadInput, match="certificate cannot be verified"):
            ask(url)
        assert not heads
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert ask(url) == "A"


def test_openai_environment_variables_are_used(monkeypatch):
    with ChaosServer() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_ORG_ID", "ward")
        backend = OpenAIChat("m", Settings())
        assert backend.base_url == server.url
        assert remote_host(backend.base_url) is None
        assert [response.status for response in backend.generate([request()])] == ["answered"]
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        assert server.headers[0]["openai-organization"] == "ward"


def test_azure_deployment_is_asked_with_its_own_variables(monkeypatch):
    with ChaosServer() as server:
        needed = {
            "AZURE_OPENAI_API_KEY": "azure-key",
            "OPENAI_API_VERSION": "2025-01-01-preview",
            "AZURE_OPENAI_ENDPOINT": server.url.removesuffix("/v1"),
        }
        # Each missing variable is named by an error of its own.
        for variable, value in needed.items():
            with pytest.raises(BadInput, match=variable):
                OpenAIChat("azure:ours", Settings())
            monkeypatch.setenv(variable, value)
        backend = OpenAIChat("azure:ours", Settings())
        assert [response.status for response in backend.generate([request()])] == ["answered"]
        assert backend.base_url.endswith("/openai/deployments/ours")
        assert server.headers[0]["api-key"] == "azure-key"
        assert KEY not in str(server.headers[0])


def test_in_flight_is_bounded_and_retry_after_is_respected():
    with ChaosServer(delay=0.02) as server:
        assert len(list(model(server, in_flight=3).generate([request(i) for i in range(20)]))) == 20
        assert server.most <= 3
    with ChaosServer(retry_after="0.3") as server:
        server.fault_for = lambda question: "429" if server.asked.total() == 1 else None
        start = time.monotonic()
        list(model(server, in_flight=1).generate([request()]))
        assert time.monotonic() - start >= 0.3


def test_closing_the_iterator_stops_sending():
    closed = threading.Event()

    def answer(body):
        assert text_of(body) in ("Question 0?", "Question 1?") or closed.wait(200)
        return "A"

    with ChaosServer(answer=answer) as server:
        answers = model(server, in_flight=2, timeout=250).generate([request(i) for i in range(200)])
        assert [next(answers).question_id for _ in range(2)] == ["0", "1"]
        # Closing the generator cancels the requests in flight.
        answers.close()
        closed.set()
        time.sleep(0.3)
        assert sum(server.asked.values()) <= 2 + 2


def test_all_slots_in_flight_are_used_after_the_first_answer():
    # The server replies only once 48 requests are in flight.
    all_there = threading.Barrier(48, timeout=200)

    def answer(body):
        assert text_of(body) == "Question 0?" or all_there.wait() >= 0
        return "A"

    with ChaosServer(answer=answer) as server:
        responses = list(model(server, in_flight=48, timeout=250).generate(request(i) for i in range(1 + 48)))
    assert len(responses) == 49 and not all_there.broken


def rejecting(name):
    """Make a server that rejects a parameter."""
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    return lambda body: (400, {"error": {"message": message}}) if name in body else "A"


def test_rejected_user_parameters_are_an_error():
    for settings, name, option in (
        ({"generation": {"top_k": 5}}, "top_k", "--generation top_k"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs", "--chat-template-kwargs"),
        ({"generation": {"temperature": 0.3}}, "temperature", "--generation temperature"),
        ({"thinking": 500}, "chat_template_kwargs", "--thinking 500"),
    ):
        with pytest.raises(BadInput, match=option):
            ask_server(rejecting(name), [request(i) for i in range(3)], **settings)


def test_parameter_name_in_an_unrelated_complaint_is_not_dropped():
    """The complaint is about something else and happens to contain the parameter's name."""
    complaint = {
        "error": {"message": "Invalid image: the body temperature chart could not be read", "param": "messages"}
    }
    with pytest.raises(BadInput, match="body temperature chart"):
        ask_server((400, complaint), [request(i) for i in range(5)])


def test_question_that_exceeds_every_limit_fails_alone():
    message = "Could not finish the message because max_tokens or model output limit was reached. Please try again with higher max_tokens."

    def thinker(body):
        limit = body["max_tokens"]
        needed = 100_000 if text_of(body) == "Question 3?" else 8000
        return "B" if limit >= needed else (400, {"error": {"message": message, "type": "invalid_request_error"}})

    # The question is the first or the fourth; the user's own limit is never raised.
    for numbers, limit, own_limit in ((range(8), 1, None), ([3, 0, 1, 2, 4, 5, 6, 7], 1, None), (range(8), 8000, 8000)):
        questions = [request(number, max_tokens=limit) for number in numbers]
        backend, replies, bodies = ask_server(thinker, questions, in_flight=4, max_tokens=own_limit)
        responses = {reply.question_id: reply for reply in replies}
        assert {i: reply.text for i, reply in responses.items()} == {**dict.fromkeys("0124567", "B"), "3": ""}
        assert responses["3"].status == "failed" and "Could not finish" in responses["3"].error
        raised = any("16384 output tokens were allowed instead of 1" in words for words in backend.deviations)
        assert raised == (own_limit is None)
    assert {body["max_tokens"] for body in bodies} == {8000}


@pytest.mark.parametrize(
    ("host", "thinking", "sent"),
    [
        (None, 1000, {"reasoning_effort": "low"}),
        (None, "off", {"reasoning_effort": "none"}),
        ("https://openrouter.ai/api/v1", 9000, {"reasoning": {"max_tokens": 9000}}),
        ("https://openrouter.ai/api/v1", "off", {"reasoning": {"enabled": False}}),
        (
            "https://api.anthropic.com/v1/",
            2000,
            {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        ),
        ("https://api.deepseek.com", "off", {"thinking": {"type": "disabled"}}),
        (
            "https://dashscope.aliyuncs.com/v1",
            300,
            {"enable_thinking": True, "thinking_budget": 300},
        ),
    ],
)
def test_known_hosts_get_their_own_reasoning_parameters(host, thinking, sent):
    assert thinking_parameters(host, thinking) == sent


def test_server_with_a_minimum_output_limit_supports_gd_and_one_token_answers():
    def least(body):
        scored = {"A": -0.1, "B": -2.0} if body.get("logprobs") else None
        return (
            (400, {"error": "minimum 16"})
            if (body.get("max_tokens") or body.get("max_completion_tokens")) < 16
            else (200, completion("A", alternatives=scored))
        )

    scoring, scored, _ = ask_server(least, [request(i, candidates=("A", "B")) for i in range(3)])
    generating, generated, _ = ask_server(least, [request(i, max_tokens=1) for i in range(3)])
    assert [reply.text for reply in scored + generated] == ["A"] * 6
    assert not scoring.deviations and "16 output tokens were allowed instead of 1" in generating.deviations[0]


@pytest.mark.parametrize(("drops", "counts"), [(True, True), (True, False), (False, True)])
def test_dropped_images_are_reported_if_tokens_are_counted(drops, counts):
    def answer(body):
        sees_image = "image_url" in json.dumps(body) and not drops
        document = completion("4817" if sees_image else "I see none.")
        document["usage"] = {"prompt_tokens": 10 + 90 * sees_image, "completion_tokens": 2} if counts else None
        return 200, document

    with ChaosServer(answer=answer) as server:
        backend = model(server)
        backend.probe_images = True
        responses = list(backend.generate([request(i) for i in range(4)]))
    assert any("drop images" in words for words in backend.deviations) == (drops and counts)
    # Four questions, and the picture with and without its image.
    assert len(server.bodies) == 6
    assert not counts or sum(reply.usage[1] for reply in responses) == 2 * 6, "it is in the cost"


def test_image_larger_than_the_maximum_is_shrunk():
    large = request(image=picture("RGB", "JPEG", size=(400, 100)))
    _, _, [body] = ask_server("A", [large], max_image_side=50)
    head, _, data = body["messages"][0]["content"][0]["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64" and max(Image.open(io.BytesIO(base64.b64decode(data))).size) == 50


@pytest.mark.parametrize("image_first", [True, False])
def test_system_message_and_examples_become_turns_in_the_requested_order(image_first):
    shots = (Shot("Q1?", "A", picture()),)
    question = request(image_first=image_first, shots=shots, more_images=(picture(),), system="You are a student.")
    _, _, [body] = ask_server("A", [question])
    system, *turns = body["messages"]
    assert system == {"role": "system", "content": "You are a student."}
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    orders = [[part["type"] for part in turn["content"]] for turn in turns if turn["role"] == "user"]
    images = [["image_url"], ["image_url"] * 2]  # of the example, of the question
    assert orders == [[*image_parts, "text"] if image_first else ["text", *image_parts] for image_parts in images]


def test_user_parameters_are_sent():
    extra = {
        "generation": {"top_p": 0.5},
        "chat_template": "{{ x }}",
        "chat_template_kwargs": {"y": 1},
    }
    _, _, [body] = ask_server("A", [request()], **extra)
    assert (body["top_p"], body["chat_template"], body["chat_template_kwargs"]) == (
        0.5,
        "{{ x }}",
        {"y": 1},
    )
