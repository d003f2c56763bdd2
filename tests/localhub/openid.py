"""A sign-in provider on the loopback, like the Hub's: OpenID Connect's code flow for one user,
without consent page.

Start it with `with OpenIdProvider(name, token) as provider:`; `token` is the access token that
users receive.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwk, jwt

CLIENT_ID, CLIENT_SECRET = "board", "board-secret"


class OpenIdProvider:
    """The provider. `environment`: variables that a Space with `hf_oauth: true` receives."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token = name, token
        self.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "loopback"})
        self.codes: dict[str, str | None] = {}
        self.scopes: list[str] = []
        handler = type("BoundHandler", (_Handler,), {"provider": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SYSTEM": "spaces",
            "SPACE_ID": "ORG/board",
            "OAUTH_CLIENT_ID": CLIENT_ID,
            "OAUTH_CLIENT_SECRET": CLIENT_SECRET,
            "OAUTH_SCOPES": "openid profile write-discussions",
            "OPENID_PROVIDER_URL": self.address,
        }

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.address,
            "authorization_endpoint": f"{self.address}/authorize",
            "token_endpoint": f"{self.address}/token",
            "jwks_uri": f"{self.address}/jwks",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def issue(self, code: str) -> dict[str, Any]:
        """Issue the tokens for a code, which is valid once."""
        # Popping makes a second use of the code fail.
        nonce = self.codes.pop(code)
        issued_at = int(time.time())
        claims = {
            "iss": self.address,
            "aud": CLIENT_ID,
            "sub": self.name,
            "iat": issued_at,
            "exp": issued_at + 600,
            "nonce": nonce,
        }
        claims |= {
            "preferred_username": self.name,
            "name": self.name,
            "profile": f"{self.address}/{self.name}",
        }
        claims |= {"picture": f"{self.address}/{self.name}.png"}
        return {
            "access_token": self.token,
            "token_type": "bearer",
            "expires_in": 600,
            "scope": "openid profile write-discussions",
            "id_token": jwt.encode({"alg": "RS256", "kid": "loopback"}, claims, self.key),
        }

    def __enter__(self) -> OpenIdProvider:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    provider: OpenIdProvider

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        parameters = dict(urllib.parse.parse_qsl(query))
        if path == "/.well-known/openid-configuration":
            self._send(200, self.provider.configuration())
        elif path == "/jwks":
            self._send(200, {"keys": [self.provider.key.as_dict(private=False)]})
        elif (
            path == "/authorize"
            and parameters.get("client_id") == CLIENT_ID
            and parameters.get("response_type") == "code"
        ):
            code = secrets.token_urlsafe(16)
            self.provider.codes[code] = parameters.get("nonce")
            self.provider.scopes.append(parameters.get("scope", ""))
            back = urllib.parse.urlencode({"code": code, "state": parameters["state"]})
            joined = "&" if "?" in parameters["redirect_uri"] else "?"
            self._send(302, {}, {"Location": f"{parameters['redirect_uri']}{joined}{back}"})
        else:
            self._send(404, {"error": "not found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        form = dict(urllib.parse.parse_qsl(body))
        if self.path == "/token" and form.get("code") in self.provider.codes:
            self._send(200, self.provider.issue(form["code"]))
        else:
            self._send(400, {"error": "invalid_grant"})

    def _send(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, family: str, *args: Any) -> None:
        pass
