"""`skep worker module:app`: run the jobs of an application until a signal stops it.

SIGTERM and Ctrl-C stop claiming at once and let running jobs end within the grace; a second signal
ends the grace. Jobs that did not end are returned, and another worker runs them.
"""

import asyncio
import signal
import socket
import sys
from contextlib import AsyncExitStack
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from skep.cli.jobs.database import jobs_dsn, with_jobs_flags
from skep.cli.shared.options import DatabaseFlags, setting_option
from skep.model.errors import BadRequest

if TYPE_CHECKING:
    from skep.jobs import Worker, WorkerApp


@with_jobs_flags
def worker(
    flags: DatabaseFlags,
    app: Annotated[
        str, Argument(help="`module:name` of a WorkerApp or JobTypes.", metavar="MODULE:APP")
    ],
    *,
    name: Annotated[str | None, Option(help="Worker name in lists; default: the host.")] = None,
    concurrency: Annotated[int, Option(min=1, help="Jobs at a time.")] = 20,
    processes: Annotated[
        int, Option(min=1, help="Processes for jobs declared to run in a process.")
    ] = 2,
    lease: Annotated[
        float, Option(min=1, help="Seconds until the jobs of a dead worker are reassigned.")
    ] = 30.0,
    poll: Annotated[
        float, Option(min=0.05, help="Seconds between polls without notifications.")
    ] = 5.0,
    grace: Annotated[float, Option(min=0, help="Seconds for running jobs to finish.")] = 20.0,
    notify: Annotated[
        bool, Option(help="Use LISTEN and NOTIFY; not possible behind a transaction pooler.")
    ] = True,
    health_port: Annotated[
        int | None,
        Option(min=0, max=65535, help="Port for livez, readyz, health and metrics."),
    ] = None,
    health_host: Annotated[str, Option(help="Address for the health port.")] = "127.0.0.1",
    log_level: Annotated[str | None, setting_option("log_level")] = None,
) -> None:
    """Run the jobs of an application until SIGTERM or Ctrl-C."""
    from skep.telemetry.logs import configure_logging

    settings = flags.settings(log_level=log_level)
    configure_logging(level=settings.log_level, style=settings.log_format)
    dsn, found, worker_name = jobs_dsn(settings), find_app(app), name or socket.gethostname()

    async def work() -> None:
        from skep.jobs import JobClient, Worker
        from skep.jobs.worker.health import HealthServer

        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(
                JobClient(dsn, types=found.registries, uses_notify=notify, tracing=found.tracing)
            )
            if found.lifespan is not None:
                await stack.enter_async_context(found.lifespan(client))
            runner = Worker(
                client,
                found.registries,
                name=worker_name,
                concurrency=concurrency,
                lease_s=lease,
                poll_s=poll,
                processes=processes,
                middleware=found.middleware,
                schedules=found.schedules,
                schedule_owner=found.schedule_owner,
            )
            await runner.start()
            address = ""
            if health_port is not None:
                health = HealthServer(runner, host=health_host, port=health_port)
                await stack.enter_async_context(health)
                address = f", health at http://{health_host}:{health.port}/health"
            typer.echo(f"Worker {worker_name} runs {concurrency} jobs at a time{address}")
            await _stop_when_asked(runner, grace)

    try:
        import uvloop
    except ModuleNotFoundError:  # an optional extra
        asyncio.run(work())
    else:
        uvloop.run(work())


def find_app(text: str) -> "WorkerApp":
    """Import the application named `module:name`."""
    from skep.jobs import JobTypes, WorkerApp

    module_name, colon, attribute = text.partition(":")
    if not colon or not module_name or not attribute:
        raise BadRequest(f"Invalid application: {text!r}. Use the form module:app")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as `python -m` does: import from the working directory
    try:
        found: Any = import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise BadRequest(f"cannot import {text}: {error}") from error
    except AttributeError as error:
        raise BadRequest(f"module {module_name} has no {attribute!r}") from error
    if isinstance(found, JobTypes):
        return WorkerApp([found])
    if not isinstance(found, WorkerApp):
        raise BadRequest(f"{text} is neither a WorkerApp nor a JobTypes")
    return found


async def _stop_when_asked(runner: "Worker", grace_s: float) -> None:
    """Wait for a signal, then drain; a second signal ends the grace."""
    first, second = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        (second if first.is_set() else first).set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    await first.wait()
    stopping = loop.create_task(runner.stop(grace_s=grace_s))
    hurrying = loop.create_task(second.wait())
    await asyncio.wait([stopping, hurrying], return_when=asyncio.FIRST_COMPLETED)
    if not stopping.done():
        runner.hurry()
    await stopping
    hurrying.cancel()
