"""Accounts of the loopback Hub by token, and their permissions."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Account:
    """An account. `role` is that of its token, named as on the Hub: a `read` token never writes."""

    name: str
    orgs: tuple[str, ...] = ()
    role: str = "write"

    def owns(self, namespace: str) -> bool:
        return namespace == self.name or namespace in self.orgs

    def may_write(self, namespace: str) -> bool:
        return self.role == "write" and self.owns(namespace)


CURATOR, READER, READ_ONLY, STRANGER = (
    "hf_curator",
    "hf_reader",
    "hf_curatorReadOnly",
    "hf_stranger",
)
ACCOUNTS = {
    CURATOR: Account("curator", ("ORG", "medlab")),
    READ_ONLY: Account("curator", ("ORG", "medlab"), role="read"),
    READER: Account("reader"),
    STRANGER: Account("stranger"),
}
