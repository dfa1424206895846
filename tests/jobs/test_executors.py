"""Handlers in threads and processes: what is claimed, when a timeout begins, what ends."""

import os
import signal
from multiprocessing import active_children
from pathlib import Path

import pytest

from skep.jobs import JobFilter, Start
from skep.jobs.errors import ChainFailed, ResultTimeout
from tests.jobs.support.heavy import (
    brief,
    heavy,
    hold_connection,
    killed,
    later,
    light,
    may_end,
    odd,
    quick,
    read,
    stuck,
    wait,
)
from tests.jobs.support.shop import atomic, new_stage, shop
from tests.sql.support.waiting import eventually


@pytest.fixture
def pipe(tmp_path):
    """Make a pipe with a name, and return its path."""

    def pipe(name):
        path = tmp_path / name
        os.mkfifo(path)
        return str(path)

    return pipe


async def result_of(chain):
    return await chain.result(timeout=30)


async def attempts_of(client, chain):
    return [each.outcome for each in await client.inspection.attempts(chain.id)]


async def states_of(client, job):
    page = await client.inspection.jobs(JobFilter(type=job.name))
    return sorted(each.state for each in page.items)


async def test_no_more_jobs_are_claimed_than_there_are_processes(client, start_worker, pipe):
    await start_worker(heavy, processes=1)
    paths = [pipe(name) for name in "abc"]
    chains = await client.start_many([Start(read, path) for path in paths])
    await eventually(lambda: _is_read(paths[0]))

    assert await result_of(await client.start(light, 1)) == 1
    assert await states_of(client, read) == ["ready", "ready", "running"]

    for path, chain in zip(paths, chains, strict=True):
        await eventually(lambda path=path: _wrote(path))
        assert await result_of(chain) == "text"


async def test_the_timeout_of_a_process_does_not_run_while_it_is_made(client, start_worker):
    await start_worker(heavy, processes=2)
    chains = await client.start_many([Start(quick, n) for n in range(4)])

    assert [await result_of(chain) for chain in chains] == [0, 1, 2, 3]


async def test_the_timeout_of_an_atomic_job_does_not_run_while_it_waits_for_a_connection(
    client, start_worker
):
    stage = new_stage()
    await start_worker(heavy, transactions=1)
    first = await client.start(hold_connection, 1)
    await stage.entered.wait()
    second = await client.start(brief, 2)
    await eventually(lambda: _is(states_of(client, brief), ["running"]))
    with pytest.raises(ResultTimeout):
        await second.result(timeout=0.8)

    stage.may_leave.set()

    assert await result_of(first) == 1
    assert await result_of(second) == 2


async def test_no_more_atomic_jobs_are_claimed_than_there_are_connections(
    client, start_worker, sql
):
    await sql.execute("create table note (value int)")
    stage = new_stage(holds=True)
    await start_worker(shop, heavy, transactions=1)
    chains = await client.start_many([Start(atomic, n) for n in range(3)])
    await stage.entered.wait()

    assert await result_of(await client.start(light, 1)) == 1
    assert await states_of(client, atomic) == ["ready", "ready", "running"]

    stage.may_leave.set()
    assert [await result_of(chain) for chain in chains] == [0, 1, 2]


async def test_a_signal_to_all_processes_of_a_worker_ends_no_handler(client, start_worker, pipe):
    await start_worker(heavy, processes=1)
    path = pipe("a")
    chain = await client.start(read, path)
    await eventually(lambda: _is_read(path))

    for child in active_children():
        if child.name == "skep-job":
            os.kill(child.pid, signal.SIGINT)
            os.kill(child.pid, signal.SIGTERM)

    await eventually(lambda: _wrote(path))
    assert await result_of(chain) == "text"


async def test_a_killed_process_is_a_failed_attempt_of_its_own_job_alone(
    client, start_worker, pipe
):
    await start_worker(heavy, processes=2)
    path = pipe("other")
    other = await client.start(read, path)
    await eventually(lambda: _is_read(path))

    for _ in range(2):
        chain = await client.start(killed, None)
        assert await result_of(chain) != os.getpid()
        assert await attempts_of(client, chain) == ["failed", "completed"]
    (first, _) = await client.inspection.attempts(chain.id)
    assert "signal 9" in first.error

    await eventually(lambda: _wrote(path))
    assert await result_of(other) == "text"
    assert await attempts_of(client, other) == ["completed"]


async def test_a_process_that_takes_too_long_is_ended_and_replaced(client, start_worker, pipe):
    await start_worker(heavy, processes=1)
    chain = await client.start(stuck, pipe("never"))

    with pytest.raises(ChainFailed, match="TimeoutError"):
        await result_of(chain)

    assert await result_of(await client.start(quick, 1)) == 1


async def test_a_handler_in_a_process_may_ask_to_run_later_and_continue(client, start_worker):
    await start_worker(heavy, processes=1)
    chain = await client.start(later, None)

    assert await result_of(chain) == 2
    assert await attempts_of(client, chain) == ["rescheduled", "continued"]


@pytest.mark.parametrize(("how", "told"), [("exit", "SystemExit"), ("raise", "number 7")])
async def test_an_exception_that_cannot_leave_its_process_is_told_by_name(
    client, start_worker, how, told
):
    await start_worker(heavy, processes=1)

    with pytest.raises(ChainFailed, match=told):
        await result_of(await client.start(odd, how))

    assert await result_of(await client.start(quick, 1)) == 1


async def test_a_thread_that_timed_out_keeps_its_place_until_it_ends(client, start_worker):
    may_end.clear()
    worker = await start_worker(heavy, concurrency=1)
    chain = await client.start(wait, None)
    try:
        await eventually(lambda: _is(attempts_of(client, chain), ["failed"]))
        with pytest.raises(ResultTimeout):
            await chain.result(timeout=0.2)
        assert await attempts_of(client, chain) == ["failed"]
        assert "skep_worker_threads_abandoned 1" in worker.meters.text()
        assert await result_of(await client.start(light, 1)) == 1
    finally:
        may_end.set()

    assert await result_of(chain) == 2
    assert "skep_worker_threads_abandoned 0" in worker.meters.text()


async def _is(reading, expected):
    return await reading == expected


def _is_read(path):
    """Whether a handler reads the pipe, or is about to."""
    return Path(f"{path}.entered").exists()


def _wrote(path):
    """Write to the pipe, if it is open at the other end."""
    try:
        end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return False
    os.write(end, b"text")
    os.close(end)
    return True
