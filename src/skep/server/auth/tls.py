"""TLS: the broker's certificate, and the authority of client certificates.

One context serves all connections. Renewed files are loaded into it while it is in use: new
handshakes use the new certificate, existing connections continue.
"""

import ssl
from pathlib import Path

from skep.model.errors import BadRequest


class UnusableCertificate(BadRequest):
    """The certificate, its key or the client authority cannot be used."""

    code = "unusable_certificate"


class ServerTls:
    """The TLS of one server."""

    def __init__(self, certificate: Path, key: Path, *, client_authority: Path | None) -> None:
        """Load the files; `UnusableCertificate` if one is unreadable or they are no pair."""
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self.context = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def reload(self) -> None:
        """Load the files again; on failure the previous ones stay in use."""
        # Into an unused context first: the one in use must not get half a pair.
        self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        self._load(self.context)

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._certificate, self._key, password=_no_password)
            if self._client_authority is not None:
                context.load_verify_locations(self._client_authority)
                context.verify_mode = ssl.CERT_REQUIRED
        except (OSError, ValueError) as error:
            raise UnusableCertificate(
                f"cannot set up TLS with {self._certificate} and {self._key}: {error}"
            ) from error
        return context


def _no_password() -> str:
    """Refuse a password-protected key: there is no prompt."""
    raise ValueError("the key is protected by a password")
