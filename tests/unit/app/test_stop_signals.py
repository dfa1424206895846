import asyncio
import os
import signal
import subprocess
import sys

import pytest
import uvloop

from skep.app.processes.stop_signals import ended_by_sigterm


@pytest.fixture
def handled():
    """Which signals reached the handler that was there before."""
    handled = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: handled.append(number))
    yield handled
    signal.signal(signal.SIGTERM, previous)


def run_with(runner, start):
    """Run a start beside a task that is busy all the time; return how both ended."""

    async def be_busy():
        while True:
            await asyncio.sleep(0)

    async def both():
        busy = asyncio.ensure_future(be_busy())
        starting = asyncio.ensure_future(start())
        await asyncio.wait([starting], timeout=10)
        is_busy = not busy.done()
        busy.cancel()
        return starting.cancelled(), is_busy

    with runner as running:
        return running.run(both())


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_signal_ends_the_task_that_asked_for_it_and_no_other(handled, loop_factory):
    async def start():
        with ended_by_sigterm():
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.Event().wait()

    assert run_with(asyncio.Runner(loop_factory=loop_factory), start) == (True, True)
    assert handled == []


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_afterwards_the_handler_of_before_has_it_again(handled, loop_factory):
    async def start():
        with ended_by_sigterm():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        while not handled:
            await asyncio.sleep(0)

    assert run_with(asyncio.Runner(loop_factory=loop_factory), start) == (False, True)
    assert handled == [signal.SIGTERM]


TELL = "import signal; print(*(signal.getsignal(n).name for n in (1, 15)))"


@pytest.mark.parametrize(
    ("ahead", "heard"),
    [
        ("", "SIG_IGN SIG_IGN"),
        (
            "from tests.support.dispositions import *; stop_handing_down_ignored_signals(); ",
            "SIG_DFL SIG_DFL",
        ),
    ],
    ids=["negative control", "as tests do"],
)
def test_programs_that_tests_start_hear_what_nohup_ignores(ahead, heard):
    start = f"{ahead}import subprocess, sys; subprocess.run([sys.executable, '-c', {TELL!r}])"
    ignoring = ["sh", "-c", 'trap "" HUP TERM; exec "$@"', "sh"]

    told = subprocess.run(
        [*ignoring, sys.executable, "-c", start], capture_output=True, text=True, check=True
    )

    assert told.stdout.split() == heard.split()
