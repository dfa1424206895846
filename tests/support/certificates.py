"""Certificates for tests, signed by an authority that is made with them."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates into a directory."""

    def __init__(self, directory):
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        own = self._sign(self._name, self._key, (constraints, True))
        self.path = self._write("authority.pem", own.public_bytes(Encoding.PEM))

    def issue(self, name, password=None):
        """Write a certificate for this machine; return its path and that of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        place = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        certificate = self._sign(subject, key, (place, False))
        lock = BestAvailableEncryption(password) if password else NoEncryption()
        spelled_key = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock)
        return (
            self._write("certificate.pem", certificate.public_bytes(Encoding.PEM)),
            self._write("key.pem", spelled_key),
        )

    def _sign(self, subject, key, extension):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(extension[0], critical=extension[1])
        )
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name, content):
        path = self._directory / name
        path.write_bytes(content)
        return path
