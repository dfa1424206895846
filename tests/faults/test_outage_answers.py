"""While PostgreSQL is away, scrapes and polls are answered in their own time."""

import asyncio

import pytest

from tests.faults.support.instances import end_well, instance
from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed, pop_path

WAIT_S = 1.5
SLACK_S = 5.0
"""What a busy machine may add; a poll that waited for the database took ten seconds more."""
SCRAPES_MAX = 20
"""The machine delays some; one that waited for the database would delay them all."""
WAITING = {"wait": True, "timeout": int(WAIT_S * 1000)}
METRICS = "/metrics/prometheus"
DISCOVERED = "/api/v1/pop?namespace=hives"
FIGURES = 'queen_cluster_push_requests_total{scope="cluster"}'


@pytest.fixture(params=["spill", "no spill"])
def away(arun, proxy, request, queue):
    """A broker that has served the queue, and whose database is gone since."""
    options = {"spill_bytes_max": 0} if request.param == "no spill" else {}
    running = instance(proxy.url, "--workers", "1", **options)

    async def start():
        # In a thread: the way to the database is served by this loop.
        broker = await asyncio.to_thread(running.__enter__)
        async with broker.connect() as client:
            await client.configure(queue, {"namespace": "hives"})
            await client.push_payloads(queue, 1)
            assert len(await client.pop(queue)) == 1
            assert (await client.call("GET", DISCOVERED)).status == 204
            assert FIGURES in (await client.call("GET", METRICS)).body.decode()
            proxy.refuse_new()
            proxy.cut_all()
            await eventually(lambda: is_unready(client))
        return broker

    async def stop(broker):
        proxy.accept_new()
        await asyncio.to_thread(end_well, broker)

    broker = arun(start())
    yield broker
    try:
        arun(stop(broker))
    finally:
        running.__exit__(None, None, None)


async def is_unready(client):
    return (await client.call("GET", "/readyz")).status == 503


async def ask(broker, path):
    async with broker.connect() as client:
        with elapsed() as waited:
            answer = await client.call("GET", path)
    return answer.status, waited.seconds


async def test_scrapes_and_polls_are_answered_in_time_while_the_database_is_away(away, queue):
    waiting = {
        "a known group": pop_path(queue, **WAITING),
        "a known partition": pop_path(queue, "Default", **WAITING),
        "a new group": pop_path(queue, consumerGroup="new", **WAITING),
        "a new queue": pop_path(f"{queue}-new", **WAITING),
        "a new partition": pop_path(queue, "new", **WAITING),
        "discovery": f"{DISCOVERED}&wait=true&timeout={WAITING['timeout']}",
    }
    asking = {
        **{f"{name}, waiting": ask(away, path) for name, path in waiting.items()},
        "a known group": ask(away, pop_path(queue)),
        "a new group": ask(away, pop_path(queue, consumerGroup="new")),
        "discovery": ask(away, DISCOVERED),
    }
    answers = dict(zip(asking, await asyncio.gather(*asking.values()), strict=True))
    scrapes = [await ask(away, METRICS)]
    while scrapes[-1][1] >= 0.2 and len(scrapes) < SCRAPES_MAX:
        scrapes.append(await ask(away, METRICS))
    async with away.connect() as client:
        text = (await client.call("GET", METRICS)).body.decode()

    late = {
        name: (status, seconds)
        for name, (status, seconds) in answers.items()
        if seconds > WAIT_S + SLACK_S or (name.endswith("waiting") and seconds < WAIT_S - 0.05)
    }
    assert late == {}
    assert {name: status for name, (status, _) in answers.items()} == {
        name: 204 if name.endswith("waiting") else 503 for name in answers
    }
    assert scrapes[-1][1] < 0.2, scrapes
    assert {status for status, _ in scrapes} == {200}
    assert "skep_installation_figures 0.0" in text
    assert FIGURES not in text
