"""Slots on a real PostgreSQL: they wait their turn, survive breaks, and say what is known."""

import asyncio
import logging
import os
import signal
from contextlib import asynccontextmanager, suppress
from random import Random

import pytest

from skep.db.access.errors import NotExecuted, OutcomeUnknown, RejectedData
from skep.db.access.slots import HOT_PATH, ONE_OFF, Slots
from skep.model.errors import Defect, SkepError, Unavailable
from tests.sql.support.waiting import eventually

APPLICATION = "slots under test"
WHO = "select pg_backend_pid()"
LOCK = 4_711
LOCKED_CALL = f"select pg_advisory_xact_lock_shared({LOCK})"
INSERT = "insert into done (n) values ($1)"
SOON_S = 15
"""Ten times the longest pause between two tries."""


@asynccontextmanager
async def opened(url, **options):
    defaults = {"size": 2, "statement_timeout_s": 10.0, "server_settings": ONE_OFF}
    slots = Slots(url, **{**defaults, **options}, application_name=APPLICATION)
    await slots.open()
    try:
        yield slots
    finally:
        await slots.close()


@pytest.fixture
def observer(arun, connect):
    """A connection of the test's own, with a table in which calls leave their mark."""
    observer = arun(connect())
    arun(observer.execute("create table public.done (n integer)"))
    return observer


async def waiting_pids(observer):
    """Return the sessions that wait for the lock."""
    query = "select pid from pg_locks where locktype = 'advisory' and objid = $1 and not granted"
    return [row[0] for row in await observer.fetch(query, LOCK)]


async def until_waiting(observer, count):
    async def has_come():
        pids = await waiting_pids(observer)
        return pids if len(pids) == count else None

    return await eventually(has_come)


@asynccontextmanager
async def lock_held(observer):
    """Make calls of LOCKED_CALL wait until the end of the block."""
    await observer.execute("select pg_advisory_lock($1)", LOCK)
    try:
        yield
    finally:
        await observer.execute("select pg_advisory_unlock($1)", LOCK)


async def require_all_free(slots, observer, size):
    """Prove that every slot can be used, by using all of them at the same moment."""
    async with lock_held(observer):
        calls = [asyncio.ensure_future(slots.call(LOCKED_CALL)) for _ in range(size)]
        await until_waiting(observer, size)
    await asyncio.gather(*calls)


async def marks(observer):
    return [row[0] for row in await observer.fetch("select n from public.done order by n")]


# Turns


async def test_a_call_returns_its_rows(database_url):
    async with opened(database_url) as slots:
        rows = await slots.call("select n, n * $1::integer from generate_series(1, 2) n", 10)

    assert [tuple(row) for row in rows] == [(1, 10), (2, 20)]


async def test_a_call_waits_for_a_free_slot(database_url, observer):
    async with opened(database_url, size=2) as slots:
        async with lock_held(observer):
            busy = [asyncio.ensure_future(slots.call(LOCKED_CALL)) for _ in range(2)]
            await until_waiting(observer, 2)
            third = asyncio.ensure_future(slots.call(WHO))
            await observer.execute("select 1")  # a round trip, in which it could have been served
            had_to_wait = not third.done()
        await asyncio.gather(*busy, third)

    assert had_to_wait


async def test_those_who_wait_are_served_in_turn(database_url, observer):
    async with opened(database_url, size=1) as slots:
        served = []

        async def call(number):
            await slots.call(LOCKED_CALL)
            served.append(number)

        async with lock_held(observer):
            calls = [asyncio.ensure_future(call(number)) for number in range(5)]
            await until_waiting(observer, 1)
        await asyncio.gather(*calls)

    assert served == list(range(5))


async def test_connections_are_kept_and_never_more_than_asked_for(database_url):
    async with opened(database_url, size=3) as slots:
        calls = [asyncio.ensure_future(slots.call(WHO)) for _ in range(60)]
        pids = {rows[0][0] for rows in await asyncio.gather(*calls)}
        later = {(await slots.call(WHO))[0][0] for _ in range(5)}

    assert len(pids) <= 3
    assert later <= pids
    assert slots.call_count == 65


async def test_connections_have_the_settings_of_their_path(database_url):
    async with opened(database_url, server_settings=HOT_PATH, statement_timeout_s=7.5) as slots:
        query = "select current_setting($1)"
        names = ("plan_cache_mode", "enable_seqscan", "statement_timeout", "timezone")
        found = [(await slots.call(query, name))[0][0] for name in names]

    assert found == ["force_generic_plan", "off", "7500ms", "UTC"]


# As many connections as calls need


CONNECTED = "select count(*) from pg_stat_activity where application_name = $1"


async def test_one_connection_serves_calls_that_come_one_by_one(database_url, observer):
    async with opened(database_url, size=4) as slots:
        for _ in range(20):
            await slots.call(WHO)

        assert await observer.fetchval(CONNECTED, APPLICATION) == 1


async def test_calls_that_come_together_open_more_which_are_closed_when_not_needed(
    database_url, observer, monkeypatch
):
    monkeypatch.setattr("skep.db.access.slots.IDLE_S", 0.05)
    async with opened(database_url, size=3) as slots:
        await require_all_free(slots, observer, 3)
        held = slots.connected_count

        async def is_alone():
            return await observer.fetchval(CONNECTED, APPLICATION) == 1

        await eventually(is_alone)
        await require_all_free(slots, observer, 3)

        assert held == 3
        assert slots.is_whole


async def test_calls_share_what_is_open_while_the_server_takes_no_more(
    proxy, observer, caplog, monkeypatch
):
    async with opened(proxy.url, size=3) as slots:
        proxy.refuse_new()
        async with lock_held(observer):
            calls = [asyncio.ensure_future(slots.call(LOCKED_CALL)) for _ in range(3)]
            await until_waiting(observer, 1)
            await eventually(lambda: "cannot open another connection" in caplog.text)
        await asyncio.gather(*calls)
        assert slots.connected_count == 1
        proxy.accept_new()
        await require_all_free(slots, observer, 3)

    assert caplog.text.count("cannot open another connection") == 1


async def test_a_connection_that_waits_for_its_first_call_has_no_transaction_open(
    database_url, observer
):
    state = "select state, xact_start from pg_stat_activity where application_name = $1"
    async with opened(database_url, prepare=(WHO,)):
        (row,) = await observer.fetch(state, APPLICATION)

    assert tuple(row) == ("idle", None)


# What a failed call means


async def test_a_statement_timeout_means_not_executed_and_the_connection_stays(
    database_url, observer
):
    async with opened(database_url, size=1, statement_timeout_s=0.2) as slots:
        before = await slots.call(WHO)
        async with lock_held(observer):
            with pytest.raises(NotExecuted):
                await slots.call(f"with marked as ({INSERT} returning n) {LOCKED_CALL}", 1)
        after = await slots.call(WHO)

    assert after[0][0] == before[0][0]
    assert await marks(observer) == []


async def test_a_refused_value_leaves_the_slot_usable(database_url, observer):
    async with opened(database_url, size=1) as slots:
        with pytest.raises(RejectedData):
            await slots.call("select 1 / $1::integer", 0)
        await require_all_free(slots, observer, 1)


@pytest.mark.parametrize("value", [1 << 40, "text", None], ids=["too large", "text", "fine"])
async def test_a_value_that_cannot_even_be_sent_is_refused_at_once(database_url, observer, value):
    async with opened(database_url, size=1) as slots:
        if value is None:
            await slots.call(INSERT, value)
        else:
            with pytest.raises(RejectedData):
                await slots.call(INSERT, value)
        await require_all_free(slots, observer, 1)


async def test_a_broken_statement_is_a_defect_and_leaves_the_slot_usable(database_url, observer):
    async with opened(database_url, size=1) as slots:
        with pytest.raises(Defect):
            await slots.call("selec 1")
        await require_all_free(slots, observer, 1)


async def test_a_session_terminated_during_a_call_leaves_the_outcome_unknown(
    database_url, observer
):
    async with opened(database_url, size=2) as slots:
        async with lock_held(observer):
            call = asyncio.ensure_future(slots.call(LOCKED_CALL))
            (pid,) = await until_waiting(observer, 1)
            await observer.execute("select pg_terminate_backend($1)", pid)
            with pytest.raises(OutcomeUnknown):
                await call
        await require_all_free(slots, observer, 2)

        assert slots.connected_count == 2


async def test_sessions_terminated_while_idle_are_replaced_before_anyone_notices(
    database_url, observer
):
    async with opened(database_url, size=2) as slots:
        pids = {(await slots.call(WHO))[0][0]}
        ended = "pg_terminate_backend(pid, 5000)"
        query = f"select {ended} from pg_stat_activity where application_name = $1"
        await observer.execute(query, APPLICATION)
        # The server's goodbye and the end of the stream may arrive apart.
        await eventually(lambda: all(slot.connection.is_closed() for slot in slots._free))

        fresh = {(await slots.call(WHO))[0][0] for _ in range(4)}

    assert not fresh & pids


async def test_a_session_that_was_ended_is_not_used_again_although_its_socket_still_stands(
    proxy, observer
):
    async with opened(proxy.url, size=1, prepare=(WHO,)) as slots:
        ((pid,),) = await slots.call(WHO)
        proxy.hold_endings()
        await observer.execute("select pg_terminate_backend($1, 5000)", pid)
        await observer.execute("select 1")  # a round trip, in which the goodbye arrives

        with pytest.raises(NotExecuted):  # nothing was sent
            await slots.call(WHO)
        ((fresh_pid,),) = await slots.call(WHO)
        proxy.pass_endings()

    assert fresh_pid != pid


async def test_a_call_cut_off_before_the_server_heard_of_it_is_of_unknown_outcome(proxy, observer):
    async with opened(proxy.url, size=1, prepare=(INSERT,)) as slots:
        proxy.at_next("insert into done", "before")

        with pytest.raises(OutcomeUnknown):
            await slots.call(INSERT, 1)
        await slots.call(INSERT, 2)

    assert await marks(observer) == [2]


async def test_a_call_cut_off_before_its_answer_is_of_unknown_outcome_and_was_done(proxy, observer):
    async with opened(proxy.url, size=1, prepare=(INSERT,)) as slots:
        proxy.at_next("insert into done", "after")

        with pytest.raises(OutcomeUnknown):
            await slots.call(INSERT, 1)
        await slots.call(INSERT, 2)

    assert await marks(observer) == [1, 2]


async def test_an_unknown_outcome_is_told_only_when_the_session_has_ended(proxy, observer):
    # The call is still on its way to the server when its client loses the connection.
    async with opened(proxy.url, size=2, prepare=(INSERT,)) as slots:
        fault = proxy.at_next("insert into done", "late")

        with pytest.raises(OutcomeUnknown):
            await slots.call(INSERT, 1)
        fault.released.set()
        await fault.over.wait()

    assert await marks(observer) == []


async def test_a_call_whose_session_cannot_be_ended_is_neither_known_nor_to_be_repeated(
    proxy, observer
):
    async with opened(proxy.url, size=1, prepare=(INSERT,), patience_s=0.2) as slots:
        proxy.shut_door()
        proxy.at_next("insert into done", "before")

        with pytest.raises(Unavailable) as failed:
            await slots.call(INSERT, 1)
        proxy.open_door()

    assert type(failed.value) is Unavailable


async def test_a_call_that_got_no_slot_was_not_executed(proxy, observer):
    async with opened(proxy.url, size=1, patience_s=0.3) as slots:
        proxy.shut_door()
        proxy.cut_all()

        with pytest.raises(NotExecuted):
            await slots.call(INSERT, 1)
        assert slots.waiting_count == 0
        cancelled = asyncio.ensure_future(slots.call(INSERT, 1))
        await eventually(lambda: slots.waiting_count == 1)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        assert slots.waiting_count == 0
        proxy.open_door()
        await eventually(lambda: _succeeds(slots.call(INSERT, 2)))

    assert await marks(observer) == [2]


@pytest.mark.parametrize("is_prepared", [True, False], ids=["known statement", "new statement"])
async def test_a_server_that_falls_silent_is_given_up_and_replaced(
    proxy, observer, is_prepared, monkeypatch
):
    monkeypatch.setattr("skep.db.access.slots.SILENCE_S", 0.1)
    prepare = (INSERT,) if is_prepared else ()
    limits = {"statement_timeout_s": 0.2, "patience_s": 0.2}
    async with opened(proxy.url, size=1, prepare=prepare, **limits) as slots:
        proxy.fall_silent()
        with pytest.raises(Unavailable if is_prepared else NotExecuted):
            await slots.call(INSERT, 1)

        proxy.speak_again()
        await eventually(lambda: _succeeds(slots.call(WHO)))
        await require_all_free(slots, observer, 1)


async def test_silence_is_noticed_also_by_calls_that_began_after_others(
    proxy, observer, monkeypatch
):
    monkeypatch.setattr("skep.db.access.slots.SILENCE_S", 0.1)
    limits = {"statement_timeout_s": 0.2, "patience_s": 0.2}
    async with opened(proxy.url, size=1, prepare=(WHO, INSERT), **limits) as slots:
        await slots.call(WHO)  # the look for late calls is set for this one
        proxy.fall_silent()
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable):
            await slots.call(INSERT, 1)
        took_s = asyncio.get_running_loop().time() - began
        proxy.speak_again()

    assert took_s > 0.29


async def test_a_look_for_late_calls_leaves_alone_those_that_have_time_left(proxy, observer):
    async with opened(proxy.url, size=1) as slots:
        async with lock_held(observer):
            call = asyncio.ensure_future(slots.call(LOCKED_CALL))
            await until_waiting(observer, 1)
            slots._end_late_calls()
        await call

        assert slots.connected_count == 1


@pytest.mark.parametrize("seed", range(3))
async def test_after_breaks_at_any_moment_all_slots_come_back(proxy, observer, seed):
    random = Random(seed)
    async with opened(proxy.url, size=3) as slots:
        is_over = False

        async def call_on():
            while not is_over:
                with suppress(NotExecuted, OutcomeUnknown):
                    await slots.call(WHO)

        callers = [asyncio.ensure_future(call_on()) for _ in range(5)]
        for _ in range(60):
            # Between none and some dozens of turns: in calls, and in the middle of logging in.
            for _ in range(random.randrange(60)):
                await asyncio.sleep(0)
            proxy.cut_all()
        is_over = True
        await asyncio.gather(*callers)

        await require_all_free(slots, observer, 3)
        assert slots.connected_count == 3


# Cancelled callers


@pytest.mark.parametrize("seed", range(3))
async def test_cancelled_callers_leave_all_slots_free(database_url, observer, seed):
    random = Random(seed)
    size = random.randint(1, 4)
    async with opened(database_url, size=size) as slots:
        calls = []
        for _ in range(60):
            statement = random.choice([WHO, "select pg_sleep(0.001)"])
            calls.append(asyncio.ensure_future(slots.call(statement)))
            for _ in range(random.randint(0, 3)):
                await asyncio.sleep(0)
            if random.random() < 0.6:
                random.choice(calls).cancel()
        await asyncio.gather(*calls, return_exceptions=True)

        await require_all_free(slots, observer, size)


async def test_a_caller_cancelled_in_the_very_turn_its_slot_came_gives_it_on(
    database_url, observer
):
    async with opened(database_url, size=1) as slots:
        async with lock_held(observer):
            busy = asyncio.ensure_future(slots.call(LOCKED_CALL))
            await until_waiting(observer, 1)
            waiter = asyncio.ensure_future(slots.call(WHO))
            await asyncio.sleep(0)
            # The slot is handed over when the first caller is done; then comes the cancellation.
            busy.add_done_callback(lambda _: waiter.cancel())
        await busy
        with suppress(asyncio.CancelledError):
            await waiter

        await require_all_free(slots, observer, 1)


@pytest.mark.parametrize("is_away", [False, True], ids=["database there", "database away"])
async def test_only_a_database_that_is_away_is_lost_by_cancelled_callers(
    proxy, observer, caplog, is_away
):
    async with opened(proxy.url, size=2) as slots:
        heard = []
        slots.listener = heard.append
        async with lock_held(observer):
            calls = [asyncio.ensure_future(slots.call(LOCKED_CALL)) for _ in range(2)]
            await until_waiting(observer, 2)
            if is_away:
                proxy.refuse_new()
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
        if is_away:
            await eventually(lambda: heard == [False])
            proxy.accept_new()
        await eventually(lambda: slots.is_whole)

    assert heard == ([False, True] if is_away else [])
    assert ("lost the database" in caplog.text) == is_away


# The end


async def test_closing_ends_those_who_wait_and_those_who_call(database_url, observer):
    async with opened(database_url, size=1) as slots:
        async with lock_held(observer):
            calling = asyncio.ensure_future(slots.call(LOCKED_CALL))
            await until_waiting(observer, 1)
            waiting = asyncio.ensure_future(slots.call(WHO))
            await asyncio.sleep(0)

            await slots.close()
            outcomes = await asyncio.gather(calling, waiting, return_exceptions=True)
        with pytest.raises(NotExecuted):
            await slots.call(WHO)

    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown, NotExecuted]


async def test_closing_leaves_no_session_behind(database_url, observer):
    async with opened(database_url, size=3) as slots:
        await slots.call(WHO)

    query = "select count(*) from pg_stat_activity where application_name = $1"

    async def is_alone():
        return await observer.fetchval(query, APPLICATION) == 0

    await eventually(is_alone)


@pytest.mark.parametrize("moment", ["before", "after"])
async def test_in_a_hurry_no_call_waits_for_a_database_that_is_away(proxy, observer, moment):
    async with opened(proxy.url, size=3, prepare=(INSERT,), patience_s=60) as slots:
        under_way = proxy.at_next("insert into done", "hold")
        calls = [asyncio.ensure_future(slots.call(INSERT, 1))]
        await under_way.struck.wait()
        proxy.refuse_new()
        proxy.cut_all()  # this one, and two that are idle
        if moment == "before":
            slots.hurry()
        else:
            await eventually(lambda: slots.connected_count == 0)
        calls += [asyncio.ensure_future(slots.call(INSERT, n)) for n in (2, 3)]
        if moment == "after":
            await eventually(lambda: slots.waiting_count == 2)
            slots.hurry()

        async with asyncio.timeout(SOON_S):
            outcomes = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [Unavailable] * 3  # not to be repeated


async def test_hurrying_twice_in_a_row_is_harmless(proxy, observer):
    async with opened(proxy.url, size=1, prepare=(INSERT,), patience_s=60) as slots:
        proxy.refuse_new()
        proxy.cut_all()
        call = asyncio.ensure_future(slots.call(INSERT, 1))
        await eventually(lambda: slots.connected_count == 0)

        for _ in range(4):  # also in the turn in which the wait is told to end
            slots.hurry()
            await asyncio.sleep(0)

        with pytest.raises(Unavailable):
            await call


@pytest.mark.parametrize("change", ["port", "password", "database"])
async def test_a_database_that_cannot_be_reached_is_said_so_at_the_opening(database_url, change):
    broken = {
        "port": lambda url: url.replace(url.rpartition(":")[2].partition("/")[0], "1"),
        "password": lambda url: url.replace("@", "x@"),
        "database": lambda url: url + "_missing",
    }[change](database_url)
    slots = Slots(broken, size=2, server_settings=ONE_OFF, statement_timeout_s=1)

    with pytest.raises(NotExecuted, match="cannot connect to the database"):
        await slots.open()


async def test_an_opening_that_failed_may_be_tried_again(proxy):
    slots = Slots(proxy.url, size=2, server_settings=ONE_OFF, statement_timeout_s=1)
    proxy.refuse_new()
    with pytest.raises(NotExecuted):
        await slots.open()
    proxy.accept_new()

    await slots.open()

    assert len(await slots.call(WHO)) == 1
    await slots.close()


async def test_an_opening_that_fails_leaves_nothing_under_way(database_url):
    slots = Slots(
        database_url, size=8, server_settings=ONE_OFF, statement_timeout_s=1, prepare=("selec 1",)
    )

    with pytest.raises(NotExecuted):
        await slots.open()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert slots.connected_count == 0


# A database that goes and comes


@pytest.mark.slow
@pytest.mark.parametrize("way", ["shutdown", "crash"])
async def test_calls_work_soon_after_the_databases_return(durable_postgres, way, caplog):
    caplog.set_level(logging.ERROR)
    server = durable_postgres(fsync="off")
    server.start()
    async with opened(server.dsn, size=3, statement_timeout_s=30) as slots:
        first = asyncio.ensure_future(slots.call("select pg_sleep(60)"))
        asleep = "select from pg_stat_activity where wait_event = 'PgSleep'"
        await eventually(lambda: slots.call(asleep))
        if way == "crash":
            os.kill(server.pid, signal.SIGKILL)
        await asyncio.to_thread(server.stop)
        waiting = [asyncio.ensure_future(_until_answered(slots)) for _ in range(3)]
        await asyncio.to_thread(server.start)
        returned_at = asyncio.get_running_loop().time()

        await asyncio.gather(*waiting)
        answered_at = asyncio.get_running_loop().time()
        with pytest.raises(OutcomeUnknown):
            await first

    assert answered_at - returned_at < SOON_S


async def _until_answered(slots):
    while True:
        with suppress(NotExecuted, OutcomeUnknown):
            return await slots.call(WHO)


async def _succeeds(call):
    try:
        await call
    except SkepError:
        return False
    return True


# Functions that a migration makes anew


GREET = "select * from public.greet($1)"


async def create_greet(observer, *, columns="greeting text", body="select 'hello ' || p_name"):
    async with observer.transaction():
        await observer.execute("drop function if exists public.greet(text)")
        await observer.execute(
            f"create function public.greet(p_name text) returns table ({columns})"
            f" language sql as $$ {body} $$"
        )


async def test_a_function_made_anew_is_called_by_those_already_connected(database_url, observer):
    await create_greet(observer)
    async with opened(database_url, size=2, prepare=(GREET,)) as slots:
        await asyncio.gather(*(slots.call(GREET, "you") for _ in range(4)))

        await create_greet(observer, body="select 'good day ' || p_name")
        answers = await asyncio.gather(*(slots.call(GREET, "you") for _ in range(4)))

    assert {rows[0][0] for rows in answers} == {"good day you"}


async def test_a_function_with_another_result_fails_once_a_connection_as_not_executed(
    database_url, observer
):
    await create_greet(observer)
    async with opened(database_url, size=1, prepare=(GREET,)) as slots:
        await slots.call(GREET, "you")

        await create_greet(observer, columns="greeting text, n int", body="select p_name, 7")
        with pytest.raises(NotExecuted):
            await slots.call(GREET, "you")
        (row,) = await slots.call(GREET, "you")

    assert tuple(row) == ("you", 7)


async def test_a_function_that_is_missing_for_a_moment_is_found_again(database_url, observer):
    await create_greet(observer)
    async with opened(database_url, size=1, prepare=(GREET,)) as slots:
        await slots.call(GREET, "you")
        await observer.execute("drop function public.greet(text)")
        with pytest.raises(NotExecuted):
            await slots.call(GREET, "you")

        await create_greet(observer)
        (row,) = await slots.call(GREET, "you")

    assert row[0] == "hello you"


async def test_a_function_made_anew_under_a_running_call_fails_it_as_not_executed(
    database_url, observer
):
    # A call does not lock its functions. This one learns between two of them, when it locks
    # a table, that the second is not the one any more with which it was planned.
    create = """
        create function public.answer() returns integer
        language plpgsql as 'begin return 7; end'"""
    statement = "select public.answer() from (select public.look() offset 0) _"
    await observer.execute(create)
    await observer.execute(
        f"create function public.look() returns void language plpgsql as"
        f" 'begin perform pg_advisory_xact_lock_shared({LOCK}); perform * from done; end'"
    )
    async with opened(database_url, size=1) as slots:
        await slots.call(statement)
        async with lock_held(observer):
            call = asyncio.ensure_future(slots.call(statement))
            await until_waiting(observer, 1)
            await observer.execute("drop function public.answer")
            await observer.execute(create)
        with pytest.raises(NotExecuted):
            await call
        (row,) = await slots.call(statement)

    assert row[0] == 7


async def test_calls_during_migrations_work_or_are_to_be_repeated(database_url, observer):
    await create_greet(observer)
    failures = []
    async with opened(database_url, size=3, prepare=(GREET,)) as slots:
        is_over = False

        async def call_on():
            while not is_over:
                try:
                    await slots.call(GREET, "you")
                except SkepError as error:
                    failures.append(error)

        callers = [asyncio.ensure_future(call_on()) for _ in range(3)]
        for _ in range(40):
            await create_greet(observer)
        is_over = True
        await asyncio.gather(*callers)
        await slots.call(GREET, "you")

    assert [error for error in failures if not isinstance(error, NotExecuted)] == []


# Limits


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("statement_timeout", "7s"),
        ("lock_timeout", "3s"),
        ("idle_in_transaction_session_timeout", "7s"),
    ],
)
async def test_every_session_has_its_limits(database_url, setting, value):
    async with opened(database_url, statement_timeout_s=7.0, lock_timeout_s=3.0) as slots:
        assert await slots.call(f"show {setting}") == [(value,)]


async def test_a_lock_is_not_waited_for_longer_than_a_statement_may_take(database_url):
    async with opened(database_url, statement_timeout_s=2.0) as slots:
        assert await slots.call("show lock_timeout") == [("2s",)]


async def test_a_call_that_waits_too_long_for_a_lock_was_not_executed(database_url, observer):
    async with opened(database_url, lock_timeout_s=0.05) as slots, lock_held(observer):
        with pytest.raises(NotExecuted, match="55P03"):
            await slots.call(LOCKED_CALL)
