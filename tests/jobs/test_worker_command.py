"""`skep worker` as a process: it runs, says how it is, drains, and refuses nonsense."""

import asyncio
import os
import re
import select
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from skep.jobs import Scheduler
from tests.jobs.support.heavy import read as read_pipe
from tests.jobs.support.program import greet, wait_for_ever
from tests.sql.support.waiting import eventually

ROOT = Path(__file__).parents[2]
RUNNING = "select count(*) > 0 from skep.open_job where worker_id is not null"


class Process:
    """A `skep worker` that has said that it runs."""

    def __init__(self, process, greeting):
        self.process = process
        self.greeting = greeting

    async def page(self, name):
        url = re.search(r"http://\S+/", self.greeting)[0]
        return await asyncio.to_thread(read, f"{url}{name}")

    async def stopped(self):
        return await asyncio.wait_for(self.process.wait(), 30)


def read(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.read().decode()


@pytest.fixture
def start_command(stack, database_url):
    async def start_command(*options, app="tests.jobs.support.program:app"):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep", "worker", app, "--poll", "1", *options),
            cwd=ROOT,
            env={**os.environ, "SKEP_DATABASE_URL": database_url},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

        async def end():
            if process.returncode is None:
                process.kill()
            await process.communicate()

        stack.push_async_callback(end)
        greeting = await asyncio.wait_for(process.stdout.readline(), 60)
        return Process(process, greeting.decode())

    return start_command


async def test_it_runs_jobs_and_tells_how_it_is(client, start_command):
    command = await start_command("--health-port", "0", "--name", "bee", "--concurrency", "7")
    assert "Worker bee runs 7 jobs at a time" in command.greeting

    assert await (await client.start(greet, "world")).result(timeout=20) == "hello world"

    assert await command.page("livez") == "alive\n"
    assert '"status":"healthy"' in await command.page("health")
    metrics = await command.page("metrics")
    assert 'skep_job_attempts_total{type="greet",outcome="completed"} 1' in metrics
    (schedule,) = await Scheduler(client.slots).page()
    assert (schedule.name, schedule.type) == ("yearly", "greet")


async def test_sigterm_returns_what_does_not_end_in_time(client, start_command, sql):
    command = await start_command("--grace", "0.2", app="tests.jobs.support.program:types")
    chain = await client.start(wait_for_ever, None)
    await eventually(lambda: sql.fetchval(RUNNING))

    command.process.send_signal(signal.SIGTERM)

    assert await command.stopped() == 0
    (attempt,) = await client.inspection.attempts(chain.id)
    assert attempt.outcome == "released"


async def test_a_handler_in_a_process_ends_with_a_worker_that_is_killed(
    client, start_command, tmp_path
):
    command = await start_command(app="tests.jobs.support.heavy:heavy")
    os.mkfifo(tmp_path / "pipe")
    await client.start(read_pipe, str(tmp_path / "pipe"))
    await eventually((tmp_path / "pipe.entered").exists)
    descriptors = [os.pidfd_open(child) for child in children_of(command.process.pid)]

    command.process.kill()

    try:
        assert descriptors
        for descriptor in descriptors:
            assert await asyncio.to_thread(select.select, [descriptor], [], [], 10) != ([], [], [])
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def children_of(process_id):
    threads = Path(f"/proc/{process_id}/task").glob("*/children")
    return [int(child) for thread in threads for child in thread.read_text().split()]


async def test_a_second_signal_does_not_wait_for_the_grace(client, start_command, sql):
    command = await start_command("--grace", "600", "--health-port", "0")
    await client.start(wait_for_ever, None)
    await eventually(lambda: sql.fetchval(RUNNING))
    command.process.send_signal(signal.SIGTERM)
    # It stops to be ready when it has heard the first signal.
    await eventually(lambda: is_unready(command))

    command.process.send_signal(signal.SIGTERM)

    assert await command.stopped() == 0


async def is_unready(command):
    try:
        await command.page("readyz")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code == 503
    return False


@pytest.mark.parametrize(
    ("app", "saying"),
    [
        ("nonsense", "module:app"),
        ("no.such.module:app", "No module named"),
        ("tests.jobs.support.program:nobody", "has no 'nobody'"),
        ("tests.jobs.support.program:nothing", "neither a WorkerApp nor a JobTypes"),
    ],
)
async def test_what_cannot_be_run_is_refused_in_one_line(start_command, app, saying):
    command = await start_command(app=app)

    assert await command.stopped() == 1
    said = (await command.process.stderr.read()).decode()
    assert saying in said
    assert said.count("\n") == 1


async def test_without_a_database_it_says_what_is_missing(tmp_path):
    foreign = {name: v for name, v in os.environ.items() if not name.startswith(("SKEP", "PG"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep", "worker", "tests.jobs.support.program:app"),
        cwd=ROOT,
        env=foreign,
        stderr=asyncio.subprocess.PIPE,
    )

    _, said = await process.communicate()

    assert process.returncode == 1
    assert b"--database-url" in said
