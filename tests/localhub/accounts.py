"""Who knocks: users, their tokens and organisations, and what each may do."""

from __future__ import annotations

from dataclasses import dataclass, field

from .wire import Refused


@dataclass(frozen=True)
class User:
    name: str
    orgs: tuple[str, ...] = ()
    kind: str = "user"


@dataclass(frozen=True)
class Token:
    """`role` as the Hub names it: a `read` token never writes, whatever its holder may do."""

    user: User
    role: str = "write"


@dataclass
class Accounts:
    tokens: dict[str, Token] = field(default_factory=dict)

    def of(self, token: str | None) -> Token | None:
        """None without a token; a token that is not known is an error on every address, as on the Hub."""
        if token is None:
            return None
        if token not in self.tokens:
            raise Refused(401, "Invalid credentials in Authorization header")
        return self.tokens[token]

    def add(self, token: str, name: str, orgs: tuple[str, ...] = (), role: str = "write") -> str:
        self.tokens[token] = Token(User(name, orgs), role)
        return token


CURATOR, READER, READ_ONLY, STRANGER = "hf_curator", "hf_reader", "hf_curatorReadOnly", "hf_stranger"


def usual_accounts() -> Accounts:
    """`curator` may write to the organisation ORG (and others in the tests); `reader` and `stranger` belong to none."""
    accounts = Accounts()
    orgs = ("ORG", "medlab")
    accounts.add(CURATOR, "curator", orgs)
    accounts.add(READ_ONLY, "curator", orgs, role="read")
    accounts.add(READER, "reader")
    accounts.add(STRANGER, "stranger")
    return accounts


def owns(token: Token | None, namespace: str) -> bool:
    return token is not None and (namespace == token.user.name or namespace in token.user.orgs)


def may_write(token: Token | None, namespace: str) -> bool:
    return token is not None and token.role == "write" and owns(token, namespace)
