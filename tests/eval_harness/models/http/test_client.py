"""The client's connections: proxies, redirects, certificates, requests that must stay local, and
how many are in flight: never more than N, and N from the second question on.
"""

import contextlib
import datetime
import ipaddress
import itertools
import socket
import ssl
import threading
import time
from random import Random

import pytest

from dataset_builders.errors import BadInput
from eval_harness.models.http.chat_client import remote_host
from eval_harness.models.http.openai_chat import OpenAIChat
from eval_harness.models.interface import Settings
from tests.chaos.server import ChaosServer
from tests.eval_harness.models.http.asking import KEY, model, request, text_of
from tests.sampling import few

REPLY_BODY = b'{"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}]}'
OK_RESPONSE = b"HTTP/1.1 200 OK_RESPONSE\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (
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
