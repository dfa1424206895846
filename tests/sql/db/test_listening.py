"""Hearing of commits on a connection of its own."""

import asyncio
import gc
import logging

import pytest

from skep.db.access import listening
from skep.db.access.listening import Listener
from tests.sql.support.waiting import eventually

CHANNEL = "skep_test"
NAME = "skep-test-ear"
SESSIONS = (
    "select pid from pg_stat_activity"
    f" where application_name = '{NAME}' and datname = current_database()"
)


class Ear:
    """Listens in a task, and keeps what it heard."""

    def __init__(self, url):
        self.heard = asyncio.Queue()
        self.begun = asyncio.Queue()
        self.is_wanted = True
        listener = Listener(
            url,
            {CHANNEL: self.heard.put_nowait},
            on_connect=lambda: self.begun.put_nowait(None),
            application_name=NAME,
        )
        self.task = asyncio.ensure_future(listener.listen_while(lambda: self.is_wanted))

    async def began(self):
        async with asyncio.timeout(60):
            await self.begun.get()

    async def next(self):
        async with asyncio.timeout(60):
            return await self.heard.get()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(listening, "CHECK_S", 0.02)
    monkeypatch.setattr(listening, "RECONNECT_S", 0.02)


@pytest.fixture
def open_ear(arun, quick):
    ears = []

    def open_ear(url):
        ears.append(Ear(url))
        return ears[-1]

    async def end_all():
        for ear in ears:
            ear.task.cancel()
        await asyncio.gather(*(ear.task for ear in ears), return_exceptions=True)

    yield open_ear
    arun(end_all())


async def test_what_a_transaction_tells_is_heard_when_it_commits(open_ear, connect, database_url):
    ear, sql = open_ear(database_url), await connect()
    await ear.began()
    async with sql.transaction():
        await sql.execute(f"notify {CHANNEL}, 'x'")
        assert ear.heard.empty()

    assert await ear.next() == "x"


async def test_a_session_that_was_ended_is_replaced_and_the_owner_is_told(
    open_ear, connect, database_url
):
    ear, sql = open_ear(database_url), await connect()
    await ear.began()
    await sql.execute(f"select pg_terminate_backend(pid) from ({SESSIONS}) s")
    await ear.began()
    await sql.execute(f"notify {CHANNEL}, 'again'")

    assert await ear.next() == "again"


async def test_a_session_that_was_cut_silently_is_noticed(
    open_ear, connect, proxy, monkeypatch, caplog
):
    caplog.set_level(logging.DEBUG, logger=listening.__name__)
    monkeypatch.setattr(listening, "PROBE_S", 0.05)
    monkeypatch.setattr(listening, "PROBE_TIMEOUT_S", 0.2)
    ear, sql = open_ear(proxy.url), await connect()
    await ear.began()
    proxy.fall_silent()
    await eventually(lambda: "not listening" in caplog.text)
    proxy.speak_again()
    await ear.began()
    await sql.execute(f"notify {CHANNEL}, 'again'")

    assert await ear.next() == "again"


async def test_a_database_that_is_away_is_waited_for(open_ear, proxy):
    proxy.shut_door()
    ear = open_ear(proxy.url)
    proxy.open_door()

    await ear.began()


async def test_listening_ends_when_it_is_not_wanted_any_more(open_ear, connect, database_url):
    ear, sql = open_ear(database_url), await connect()
    await ear.began()
    assert not await has_no_session(sql)
    ear.is_wanted = False
    async with asyncio.timeout(60):
        await ear.task

    await eventually(lambda: has_no_session(sql))


async def has_no_session(sql):
    return not await sql.fetch(SESSIONS)


async def test_a_database_that_refuses_is_tried_again_and_again(open_ear, database_url, caplog):
    caplog.set_level(logging.DEBUG, logger=listening.__name__)
    ear = open_ear(f"{database_url}_of_another_name")

    await eventually(lambda: caplog.text.count("not listening") > 2)

    assert not ear.task.done()


async def test_stopped_while_it_connects_it_leaves_no_complaint_behind(database_url):
    loop, complaints = asyncio.get_running_loop(), []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    for turns in range(40):
        listener = Listener(database_url, {}, on_connect=lambda: None)
        listener.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await listener.stop()
    gc.collect()  # what was never retrieved complains when it goes
    loop.set_exception_handler(None)

    assert complaints == []
