"""A sign-in provider on the loopback, like the Hub's: OpenID Connect's code flow for one user,
without consent page.

Start it with `with OpenIdProvider(name, token) as provider:`; `token` is the access token that
users receive.
"""

import json
import secrets
import time
import urllib.parse
from typing import Any

from joserfc import jwk, jwt

from .server import LoopbackServer, QuietHandler

CLIENT_ID, CLIENT_SECRET = "board", "board-secret"


class OpenIdProvider(LoopbackServer):
    """The provider. `environment`: variables that a Space with `hf_oauth: true` receives."""

    def __init__(self, name: str, token: str) -> None:
        self.name, self.token = name, token
        self.key = jwk.RSAKey.generate_key(2048, parameters={"kid": "loopback"})
        self.codes: dict[str, str | None] = {}
        self.scopes: list[str] = []
        super().__init__(_Handler, provider=self)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "SYSTEM": "spaces",
            "SPACE_ID": "ORG/board",
            "OAUTH_CLIENT_ID": CLIENT_ID,
            "OAUTH_CLIENT_SECRET": CLIENT_SECRET,
            "OAUTH_SCOPES": "openid profile write-discussions",
            "OPENID_PROVIDER_URL": self.endpoint,
        }

    def configuration(self) -> dict[str, Any]:
        return {
            "issuer": self.endpoint,
            "authorization_endpoint": f"{self.endpoint}/authorize",
            "token_endpoint": f"{self.endpoint}/token",
            "jwks_uri": f"{self.endpoint}/jwks",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def issue(self, code: str) -> dict[str, Any]:
        """Issue the tokens for a code, which is valid once."""
        # Popping makes a second use of the code fail.
        nonce = self.codes.pop(code)
        issued_at = int(time.time())
        claims = {
            "iss": self.endpoint,
            "aud": CLIENT_ID,
            "sub": self.name,
            "iat": issued_at,
            "exp": issued_at + 600,
            "nonce": nonce,
            "preferred_username": self.name,
            "name": self.name,
            "profile": f"{self.endpoint}/{self.name}",
            "picture": f"{self.endpoint}/{self.name}.png",
        }
        return {
            "access_token": self.token,
            "token_type": "bearer",
            "expires_in": 600,
            "scope": "openid profile write-discussions",
            "id_token": jwt.encode({"alg": "RS256", "kid": "loopback"}, claims, self.key),
        }


class _Handler(QuietHandler):
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
        self.respond(status, {"Content-Type": "application/json", **(headers or {})}, json.dumps(content).encode())
