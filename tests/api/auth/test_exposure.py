"""What the broker says and bounds so that nobody is surprised: warnings, connections, secrets."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import AsyncExitStack

import pytest

from tests.sql.support.waiting import eventually
from tests.support.tokens import SECRET

CONNECTIONS_MAX = 3


@pytest.fixture(scope="module")
def broker(start_broker):
    with start_broker(
        "--workers",
        "1",
        "--host",
        "0.0.0.0",
        client_connections_max=CONNECTIONS_MAX,
    ) as broker:
        yield broker


def test_a_broker_that_others_reach_and_nobody_guards_warns_loudly(broker):
    assert (
        "WARNING skep.security AUTHENTICATION IS DISABLED: any client that can reach 0.0.0.0"
        in broker.log()
    )


async def test_connections_beyond_the_limit_are_told_so_and_others_go_on(broker):
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(broker.connect()) for _ in range(CONNECTIONS_MAX)
        ]
        for client in clients:
            assert (await client.call("GET", "/livez")).status == 200

        async with broker.connect() as one_more:
            refusal = await one_more.answer()
            assert refusal.status == 503
            assert json.loads(refusal.body)["code"] == "overloaded"
            assert await one_more.rest() == b""
        assert (await clients[0].call("GET", "/livez")).status == 200

    # The broker has to notice first that they are gone.
    await eventually(lambda: is_served(broker))


async def is_served(broker):
    async with broker.connect() as client:
        try:
            return (await client.call("GET", "/livez")).status == 200
        except (ConnectionError, asyncio.IncompleteReadError):
            return False  # cut off while we were still sending


def skep(*arguments, **variables):
    return subprocess.run(
        [sys.executable, "-m", "skep", *arguments],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("form", [(), ("-o", "json")])
def test_secrets_are_not_printed_with_the_settings(form):
    url = "https://me:hush-hush@keys.example.com/jwks"
    printed = skep("config", *form, JWT_SECRET=SECRET, JWT_JWKS_URL=url)

    assert printed.returncode == 0, printed.stderr
    assert "***" in printed.stdout
    assert SECRET not in printed.stdout + printed.stderr
    assert "hush-hush" not in printed.stdout + printed.stderr


def test_a_secret_that_is_refused_is_not_printed(tmp_path):
    place = ("--port", "0", "--data-dir", str(tmp_path))
    refused = skep("serve", *place, JWT_ENABLED="true", JWT_SECRET="too-short-a-secret")

    assert refused.returncode != 0
    assert "jwt_secret must have at least 32 bytes" in refused.stderr
    assert "too-short-a-secret" not in refused.stdout + refused.stderr


def test_keys_that_cannot_be_used_stop_the_start(tmp_path):
    place = ("--port", "0", "--data-dir", str(tmp_path))
    keys = {"JWT_ENABLED": "true", "JWT_ALGORITHM": "RS256", "JWT_PUBLIC_KEY": "no key"}
    refused = skep("serve", *place, **keys)

    assert refused.returncode != 0
    assert "no PEM block" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_certificate_that_cannot_be_used_stops_the_start(tmp_path):
    missing = str(tmp_path / "nothing.pem")
    place = ("--port", "0", "--data-dir", str(tmp_path))
    refused = skep("serve", *place, SKEP_TLS_CERTIFICATE=missing, SKEP_TLS_KEY=missing)

    assert refused.returncode != 0
    assert "nothing.pem" in refused.stderr
    assert "Traceback" not in refused.stderr
