"""What the dashboard asks a broker for: the pulse, and the settings in force."""

import asyncio
import json

import pytest


@pytest.fixture
def broker_with_secret(start_broker):
    with start_broker("--workers", "1", peer_secret="a secret that peers share " * 2) as broker:
        yield broker


async def samples_of(broker, wanted):
    """Follow the pulse for so many samples."""
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        writer.write(b"GET /api/v1/dashboard/live HTTP/1.1\r\nhost: skep\r\n\r\n")
        found = []
        async with asyncio.timeout(60):
            while len(found) < wanted:
                line = await reader.readline()
                if line.startswith(b"data: ") and line != b"data: {}\n":
                    found.append(json.loads(line[6:]))
        return found
    finally:
        writer.transport.abort()


async def test_the_pulse_tells_what_there_is_and_what_happens(broker, client, queue):
    await client.push_payloads(queue, 1, 2, 3)

    first, second = await samples_of(broker, 2)

    assert first["messages"]["total"] >= 3
    assert first["queues"] >= 1
    assert second["pushedPerSecond"] is not None
    assert second["parkedPolls"] >= 0


async def test_a_broker_that_stops_ends_the_streams_of_those_who_watch(broker_to_stop):
    reader, writer = await asyncio.open_connection("127.0.0.1", broker_to_stop.port)
    writer.write(b"GET /api/v1/dashboard/live HTTP/1.1\r\nhost: skep\r\n\r\n")
    async with asyncio.timeout(60):
        await reader.readuntil(b"data: ")
        exit_code = await asyncio.to_thread(broker_to_stop.stop)
        await reader.read()
    writer.transport.abort()

    assert exit_code == 0
    assert "ERROR" not in broker_to_stop.log()


async def test_settings_are_shown_with_their_origin_and_without_passwords(broker_with_secret):
    async with broker_with_secret.connect() as client:
        answer = await client.call("GET", "/api/v1/system/settings")

    settings = {each["name"]: each for each in json.loads(answer.body)["settings"]}
    assert settings["workers"]["value"] == "1"
    assert "flag" in settings["workers"]["origin"]
    assert "SKEP_PEER_SECRET" in settings["peer_secret"]["origin"]
    assert settings["peer_secret"]["value"] == "***"
    assert settings["poll_interval_ms"]["origin"] == "default"
