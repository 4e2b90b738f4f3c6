"""Who may speak to a server: a token on every call, and TLS by certificate files."""

from __future__ import annotations

import hmac
import secrets
import ssl
from dataclasses import dataclass, field

from sparkdml.server.wire.messages import TOKEN_BYTES


@dataclass(frozen=True)
class Security:
    """One for a server and its clients, or one each.

    token : 32 bytes. certificate, key : PEM files of this side; a server that has them speaks TLS.
    authority : PEM file of who must have signed the other side's certificate. A client with it speaks TLS and checks
    the server's name; a server with it wants certificates of clients too (mutual TLS).
    """

    token: bytes = field(repr=False)
    certificate: str = ""
    key: str = ""
    authority: str = ""

    def __post_init__(self) -> None:
        if len(self.token) != TOKEN_BYTES:
            raise ValueError(f"the token has {len(self.token)} bytes; take {TOKEN_BYTES}, as of Security.fresh()")
        if bool(self.certificate) != bool(self.key):
            raise ValueError(
                f"certificate={self.certificate!r} and key={self.key!r}: the files of both are needed, or neither"
            )

    @classmethod
    def fresh(cls, certificate: str = "", key: str = "", authority: str = "") -> Security:
        """With a new random token."""
        return cls(secrets.token_bytes(TOKEN_BYTES), certificate, key, authority)

    def admits(self, token: bytes) -> bool:
        """Whether the token is this one, in a time that does not depend on where they differ."""
        return hmac.compare_digest(self.token, token)

    def for_server(self) -> ssl.SSLContext | None:
        """None without a certificate: plain TCP."""
        if not self.certificate:
            if self.authority:
                raise ValueError("a server that asks clients for certificates needs a certificate and a key of its own")
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        if self.authority:
            context.load_verify_locations(self.authority)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def for_client(self) -> ssl.SSLContext | None:
        """None without an authority: plain TCP."""
        if not self.authority:
            if self.certificate:
                raise ValueError("a client with a certificate needs the authority that signed the server's as well")
            return None
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self.authority)
        if self.certificate:
            context.load_cert_chain(self.certificate, self.key)
        return context
