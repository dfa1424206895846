"""While PostgreSQL is away or silent, scrapes and polls are answered in their own time."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from tests.faults.support.instances import end_well, instance
from tests.sql.support.waiting import eventually
from tests.support.broker import elapsed, payloads, pop_path

WAIT_S = 1.5
SLACK_S = 5.0
"""What a busy machine may add; a poll that waited for the database took ten seconds more."""
SCRAPES_MAX = 20
"""The machine delays some; one that waited for the database would delay them all."""
WAITING = {"wait": True, "timeout": int(WAIT_S * 1000)}
METRICS = "/metrics/prometheus"
DISCOVERED = "/api/v1/pop?namespace=hives"
FIGURES = 'queen_cluster_push_requests_total{scope="cluster"}'


@asynccontextmanager
async def serving(proxy, queue, **settings):
    """Run a broker behind a proxy that has served the queue; at the end the way is free again."""
    running = instance(proxy.url, "--workers", "1", **settings)
    # In a thread: the way to the database is served by this loop.
    broker = await asyncio.to_thread(running.__enter__)
    try:
        async with broker.connect() as client:
            await client.configure(queue, {"namespace": "hives"})
            await client.push_payloads(queue, 1)
            assert len(await client.pop(queue)) == 1
            assert (await client.call("GET", DISCOVERED)).status == 204
            assert FIGURES in (await client.call("GET", METRICS)).body.decode()
        yield broker
        proxy.accept_new()
        await asyncio.to_thread(end_well, broker)
    finally:
        running.__exit__(None, None, None)


async def is_unready(client):
    return (await client.call("GET", "/readyz")).status == 503


async def ask(broker, path):
    async with broker.connect() as client:
        with elapsed() as waited:
            answer = await client.call("GET", path)
    return answer.status, waited.seconds


@pytest.mark.parametrize("settings", [{}, {"spill_bytes_max": 0}], ids=["spill", "no spill"])
async def test_scrapes_and_polls_are_answered_in_time_while_the_database_is_away(
    proxy, queue, settings
):
    async with serving(proxy, queue, **settings) as away:
        async with away.connect() as client:
            proxy.refuse_new()
            proxy.cut_all()
            await eventually(lambda: is_unready(client))
        await require_answers_in_time(away, queue)


async def require_answers_in_time(away, queue):
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


POLLS = {
    "a group": {},
    "a group that waits": WAITING,
    "a partition": {"partition": "Default"},
    "acknowledged at once": {"autoAck": True},
}


async def test_while_the_database_is_silent_polls_are_answered_in_time_and_give_their_claims_back(
    proxy, queue
):
    queues = {name: f"{queue}-{number}" for number, name in enumerate(POLLS)}
    async with serving(proxy, queue) as silent:
        async with silent.connect() as client:
            for name, each in queues.items():
                await client.push_payloads(each, 1)
                assert len(await client.pop(each, autoAck=True)) == 1
                await client.push_payloads(each, name)
        proxy.fall_silent()
        asking = [ask(silent, pop_path(queues[name], **POLLS[name])) for name in POLLS]
        asking += [ask(silent, pop_path(queue, "new")), ask(silent, DISCOVERED)]
        answers = await asyncio.gather(*asking, ask(silent, "/health"), ask(silent, "/readyz"))
        proxy.speak_again()
        async with silent.connect() as client:
            given_back = {
                name: await client.pop(each, wait=True, timeout=30_000)
                for name, each in queues.items()
            }

    late = [seconds for _, seconds in answers if seconds > WAIT_S + SLACK_S]
    assert late == []
    assert [status for status, _ in answers] == [503, 204, 503, 503, 503, 503, 503, 503]
    assert {name: payloads(messages) for name, messages in given_back.items()} == {
        name: [name] for name in POLLS
    }
    assert {messages[0]["deliveryAttempt"] for messages in given_back.values()} == {1}
