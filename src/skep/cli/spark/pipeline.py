"""`skep pipeline`: run, show and stop computations between queues on Spark."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared import options
from skep.cli.shared.connection import with_client
from skep.cli.shared.declare import listing
from skep.cli.shared.exits import stop_signals
from skep.cli.shared.help import Commands
from skep.cli.shared.output import Output, print_record
from skep.cli.spark.options import Master, StorageText, announced_log, counting_bar
from skep.model.errors import BadRequest, Refused
from skep.model.plurals import counted
from skep.settings.fields import description

if TYPE_CHECKING:
    from skep.client import Client
    from skep.spark.pipelines.registry import Progress

pipeline_app: Final = Commands("pipeline", "Run computations between queues on Spark.")

Name = Annotated[str, Argument(help="Pipeline name.")]

POLL_S: Final = 0.2
_RUNNING: Final = ("starting", "running")
_COLUMNS: Final = (
    *("name as pipeline", "condition", "messages", "messagesPerSecond as per second"),
    *("lagMessages as lag", "reportedAt", "lastError as error"),
)


@pipeline_app.command(
    epilog=options.examples(
        "skep pipeline run revenue.yaml", "skep pipeline run large.py --available-now"
    )
)
@options.with_database_flags
def run(
    flags: options.DatabaseFlags,
    file: Annotated[
        str,
        Argument(help="`pipeline.yaml`, `file.py`, `file.py:name` or `package.module:name`."),
    ],
    *,
    master: Master = None,
    warehouse: Annotated[str | None, Option(help=description("archive_warehouse"))] = None,
    storage: StorageText = None,
    checkpoint: Annotated[
        str | None,
        Option(help="Checkpoint directory; default: `pipelines/NAME` in the data dir."),
    ] = None,
    reset: Annotated[bool, Option("--reset", help="Delete the checkpoint and start over.")] = False,
    available_now: Annotated[
        bool, Option("--available-now", help="End when all stored messages are read.")
    ] = False,
) -> None:
    """Run a pipeline until it ends or is stopped."""
    import msgspec

    from skep.app.processes.database import join_database
    from skep.spark.pipelines.files import load_pipeline
    from skep.spark.pipelines.run import PipelineRun, RunPlan, checkpoint_of
    from skep.spark.runtime.session import DEFAULT_MASTER

    pipeline = load_pipeline(file)
    if available_now:
        pipeline = msgspec.structs.replace(pipeline, trigger="availableNow")
    settings = flags.settings(archive_warehouse=warehouse, archive_storage=storage)
    with (
        join_database(settings) as database,
        counting_bar(pipeline.name, "starting Spark") as show,
        stop_signals() as stop,
    ):

        def on_progress(progress: "Progress") -> None:
            rate = f"{progress.rate:,.0f} messages/s, {counted(progress.batches, 'batch')}"
            if not progress.batches:
                rate = "reading the first batch"
            show(progress.messages, progress.messages + (progress.lag_messages or 0), rate)

        plan = RunPlan(
            url=database.dsn,
            checkpoint=checkpoint or checkpoint_of(pipeline, settings.data_dir),
            master=master or DEFAULT_MASTER,
            is_reset=reset,
            warehouse=settings.archive_warehouse,
            storage=settings.archive_storage,
            log=announced_log(f"skep pipeline {pipeline.name}"),
        )
        done = PipelineRun(pipeline, plan, on_progress=on_progress).run(stop)
    messages, batches = counted(done.messages, "message"), counted(done.batches, "batch")
    typer.echo(f"{pipeline.name}: read {messages} in {batches}")


@pipeline_app.command(name="test")
def run_tests(
    file: Annotated[
        str,
        Argument(help="`pipeline.yaml`, `file.py`, `file.py:name` or `package.module:name`."),
    ],
    *,
    master: Master = None,
) -> None:
    """Run the tests in a pipeline's file, without a database."""
    from skep.cli.spark.options import session
    from skep.spark.pipelines.cases import try_cases
    from skep.spark.pipelines.files import load_pipeline

    pipeline = load_pipeline(file)
    if not pipeline.tests:
        raise BadRequest(f"{file} has no tests: add some under the key tests")
    failed = 0
    for case in try_cases(session(f"skep pipeline {pipeline.name}", master), pipeline):
        typer.echo(f"{'FAILED' if case.problems else 'ok':8}{case.name}")
        for problem in case.problems:
            typer.echo(f"        {problem}")
        failed += bool(case.problems)
    if failed:
        raise Refused(f"{failed} of {counted(len(pipeline.tests), 'test')} failed")
    typer.echo(f"{pipeline.name}: {counted(len(pipeline.tests), 'test')} passed")


@pipeline_app.command(name="list")
@listing(_COLUMNS, empty="no pipeline has run on this database")
def list_pipelines(client: "Client", limit: int, offset: int) -> Any:
    """List pipelines, with their last report."""
    from skep.client.endpoints import path_of

    found = client.request("GET", path_of("pipelines", limit=limit, offset=offset))["pipelines"]
    return [{**row, "condition": _condition(row)} for row in found]


@pipeline_app.command()
@with_client
def status(client: "Client", name: Name, *, output: Output = "table") -> None:
    """Show a pipeline."""
    found = _find(client, name)
    if output == "table":
        found |= {"state": _condition(found), "lastBatch": None, "recent": None}
        found["expectations"] = "\n".join(map(_spelled_expectation, found["expectations"]))
    print_record(found, output)


@pipeline_app.command()
@with_client
def stop(
    client: "Client",
    name: Name,
    *,
    wait: Annotated[float, Option(help="Seconds to wait for it; 0: do not wait.", min=0)] = 30.0,
) -> None:
    """Stop a pipeline, wherever it runs."""
    from skep.client.endpoints import path_of

    asked = client.request("POST", path_of("pipelines", name, "stop"))
    if asked["state"] not in _RUNNING:
        typer.echo(f"Pipeline {name} is not running: it is {asked['state']}")
    elif not asked["isStopping"]:
        raise Refused(
            f"pipeline {name} has not reported for a while: its process is gone. Run it again to "
            "continue"
        )
    elif _has_stopped(client, name, wait):
        typer.echo(f"Stopped pipeline {name}")
    elif wait:
        raise Refused(f"pipeline {name} did not stop within {wait:g} s")
    else:
        typer.echo(f"Asked pipeline {name} to stop")


def _find(client: "Client", name: str) -> dict[str, Any]:
    from skep.client.endpoints import path_of

    return client.request("GET", path_of("pipelines", name))


def _has_stopped(client: "Client", name: str, wait_s: float) -> bool:
    giving_up_at = time.monotonic() + wait_s
    while time.monotonic() < giving_up_at:
        if _find(client, name)["state"] not in _RUNNING:
            return True
        time.sleep(POLL_S)
    return False


def _spelled_expectation(expected: Mapping[str, Any]) -> str:
    place = f"{expected['sink']}, {expected['otherwise']}"
    failed = f"{expected['failed']:,} of {counted(expected['rows'], 'row')} failed"
    return f"{expected['name']} ({place}): {failed}"


def _condition(row: Mapping[str, Any]) -> str:
    """Return the state; of a pipeline whose process is gone, that it is silent."""
    if row["isStopping"]:
        return "stopping"
    return "missing" if row["state"] in _RUNNING and not row["isAlive"] else row["state"]
