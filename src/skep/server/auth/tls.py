"""TLS: the broker's own certificate, and those of its clients if it asks for them.

One context serves all connections. Renewed files are loaded into it while it is in use: handshakes
that begin afterwards see the new certificate, connections that exist go on.
"""

import ssl
from pathlib import Path

from skep.model.errors import BadRequest


class UnusableCertificate(BadRequest):
    """The certificate, its key or the authority of clients cannot be used."""

    code = "unusable_certificate"


class ServerTls:
    """The TLS of one server."""

    def __init__(self, certificate: Path, key: Path, *, client_authority: Path | None) -> None:
        """Load the files.

        Raises:
            UnusableCertificate: They are missing, unreadable or do not belong together.
        """
        self._certificate = certificate
        self._key = key
        self._client_authority = client_authority
        self.context = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))

    def reload(self) -> None:
        """Load the files again; if they cannot be used, what was loaded stays in force.

        Raises:
            UnusableCertificate: They cannot be used.
        """
        # Into a context that nobody uses first: half a pair must not get into the one in use.
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
                f"TLS with {self._certificate} and {self._key} cannot be set up: {error}"
            ) from error
        return context


def _no_password() -> str:
    """Refuse a key under a password: nobody is there to be asked for it."""
    raise ValueError("the key is protected by a password")
