"""TLS: encrypted, with certificates that can be renewed, and clients that prove who they are."""

import asyncio
import ssl

import pytest

from skep.server.auth.tls import ServerTls, UnusableCertificate
from tests.support.broker import Connection
from tests.support.certificates import Authority


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


@pytest.fixture
def trusting(authority):
    """What a client uses that trusts the authority."""
    return ssl.create_default_context(cafile=authority.path)


@pytest.fixture
def client_authority(request, authority):
    """Whether clients are asked for certificates."""
    asks = getattr(request, "param", False)
    return {"tls_client_authority": authority.path} if asks else {}


@pytest.fixture
def broker(start_broker, authority, client_authority):
    certificate, key = authority.issue("skep")
    files = {"tls_certificate": certificate, "tls_key": key, **client_authority}
    with start_broker("--workers", "1", **files) as broker:
        yield broker


async def call(port, context, path="/health"):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        return await Connection(reader, writer).call("GET", path)
    finally:
        writer.transport.abort()


async def test_defect_50_a_broker_with_a_certificate_speaks_tls(broker, trusting):
    assert broker.url.startswith("https://")
    answer = await call(broker.port, trusting)
    assert answer.status == 200
    assert answer.headers["strict-transport-security"].startswith("max-age=")
    assert (await call(broker.port, trusting, "/api/v1/pop/queue/tls")).status == 204


async def test_it_does_not_answer_in_clear(broker):
    async with broker.connect() as client:
        client.request("GET", "/health")
        assert b"HTTP/1.1" not in await client.rest()


@pytest.mark.parametrize("client_authority", [True], indirect=True)
async def test_clients_prove_who_they_are_if_asked_to(broker, authority, trusting):
    with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
        await call(broker.port, trusting)

    trusting.load_cert_chain(*authority.issue("client"))
    assert (await call(broker.port, trusting)).status == 200


class TestRenewal:
    def name_seen(self, tls, trusting):
        """Shake hands in memory; return the name in the certificate of the server."""
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = tls.context.wrap_bio(incoming, outgoing, server_side=True)
        client = trusting.wrap_bio(outgoing, incoming, server_hostname="127.0.0.1")
        for side in (client, server, client, server):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
        return dict(client.getpeercert()["subject"][0])["commonName"]

    def test_a_renewed_certificate_is_shown_to_those_who_come_later(self, authority, trusting):
        tls = ServerTls(*authority.issue("before"), client_authority=None)
        assert self.name_seen(tls, trusting) == "before"

        authority.issue("after")
        tls.reload()
        assert self.name_seen(tls, trusting) == "after"

    def test_files_that_cannot_be_used_change_nothing(self, authority, trusting):
        certificate, key = authority.issue("before")
        tls = ServerTls(certificate, key, client_authority=None)
        kept = key.read_bytes()
        authority.issue("after")
        key.write_bytes(kept)  # the key of another certificate

        with pytest.raises(UnusableCertificate):
            tls.reload()
        assert self.name_seen(tls, trusting) == "before"


@pytest.mark.parametrize("trouble", ["absent", "empty", "locked"])
def test_files_that_cannot_be_used_are_refused(authority, trouble):
    certificate, key = authority.issue("skep", password=b"x" if trouble == "locked" else None)
    if trouble == "absent":
        key.unlink()
    elif trouble == "empty":
        certificate.write_text("")

    with pytest.raises(UnusableCertificate):
        ServerTls(certificate, key, client_authority=None)


def test_old_versions_are_not_spoken(authority):
    tls = ServerTls(*authority.issue("skep"), client_authority=None)

    assert tls.context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_the_settings_name_what_was_wrong_before_anything_starts(authority, tmp_path):
    certificate, _ = authority.issue("skep")

    with pytest.raises(UnusableCertificate, match=r"nothing\.pem"):
        ServerTls(certificate, tmp_path / "nothing.pem", client_authority=None)
