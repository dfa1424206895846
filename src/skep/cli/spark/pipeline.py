"""`skep pipeline`: run, show and stop computations between queues on Spark."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from skep.cli.shared import options
from skep.cli.shared.exits import stop_signals
from skep.cli.shared.help import Commands
from skep.cli.shared.output import Output, print_found
from skep.cli.spark.options import Master, counting_bar
from skep.model.errors import NotFound, Refused
from skep.model.limits import PIPELINE_SILENT_S

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.spark.pipelines.registry import Progress, Registry

pipeline_app: Final = Commands("pipeline", "Run computations between queues on Spark.")

Name = Annotated[str, Argument(help="Pipeline name.")]

POLL_S: Final = 0.2
_COLUMNS: Final = ("name", "state", "messages", "messagesPerSecond", "lagMessages", "lastError")


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

    pipeline, transform = load_pipeline(file)
    if available_now:
        pipeline = msgspec.structs.replace(pipeline, trigger="availableNow")
    settings = flags.settings()
    with (
        join_database(settings) as database,
        counting_bar(pipeline.name, "starting Spark") as show,
        stop_signals() as stop,
    ):

        def on_progress(progress: "Progress") -> None:
            rate = f"{progress.rate:,.0f} messages/s, {progress.batches:,} batches"
            show(progress.messages, progress.messages + (progress.lag_messages or 0), rate)

        plan = RunPlan(
            url=database.dsn,
            checkpoint=checkpoint or checkpoint_of(pipeline, settings.data_dir),
            master=master or DEFAULT_MASTER,
            is_reset=reset,
        )
        done = PipelineRun(pipeline, transform, plan, on_progress=on_progress).run(stop)
    typer.echo(f"{pipeline.name}: read {done.messages:,} messages in {done.batches:,} batches")


@pipeline_app.command(name="list")
@options.with_database_flags
def list_pipelines(flags: options.DatabaseFlags, *, output: Output = "table") -> None:
    """List the pipelines of this database."""
    with _registry(flags.settings()) as registry:
        rows = [_summary(row) for row in registry.listed()]
    print_found(rows, _COLUMNS, output, empty="no pipeline has run on this database")


@pipeline_app.command()
@options.with_database_flags
def status(flags: options.DatabaseFlags, name: Name) -> None:
    """Show a pipeline."""
    with _registry(flags.settings()) as registry:
        row = registry.find(name)
    if row is None:
        raise NotFound(f"pipeline {name} does not exist; `skep pipeline list` shows the pipelines")
    shown = {**row, "state": _state(row)}
    for column in ("name", "silent_s", "total", "should_stop"):
        del shown[column]
    typer.echo(name)
    for column, value in shown.items():
        if value is not None:
            typer.echo(f"  {column.replace('_', ' ')}: {value}")


@pipeline_app.command()
@options.with_database_flags
def stop(
    flags: options.DatabaseFlags,
    name: Name,
    *,
    wait: Annotated[float, Option(help="Seconds to wait for it; 0: do not wait.", min=0)] = 30.0,
) -> None:
    """Stop a pipeline, wherever it runs."""
    with _registry(flags.settings()) as registry:
        asked = registry.stop(name)
        if asked["state"] not in ("starting", "running"):
            typer.echo(f"Pipeline {name} is not running: it is {asked['state']}")
            return
        if asked["silent_s"] > PIPELINE_SILENT_S:
            raise Refused(
                f"pipeline {name} has not reported for {asked['silent_s']:.0f} s: its process is "
                "gone. Run it again to continue"
            )
        if _has_stopped(registry, name, wait):
            typer.echo(f"Stopped pipeline {name}")
        elif wait:
            raise Refused(f"pipeline {name} did not stop within {wait:g} s")
        else:
            typer.echo(f"Asked pipeline {name} to stop")


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the list, by the names of the wire."""
    return {
        "name": row["name"],
        "state": _state(row),
        "messages": row["messages"],
        "messagesPerSecond": row["rate"],
        "lagMessages": row["lag_messages"],
        "lastError": row["last_error"],
    }


def _has_stopped(registry: "Registry", name: str, wait_s: float) -> bool:
    giving_up_at = time.monotonic() + wait_s
    while time.monotonic() < giving_up_at:
        row = registry.find(name)
        if row is None or row["state"] not in ("starting", "running"):
            return True
        time.sleep(POLL_S)
    return False


def _state(row: Mapping[str, Any]) -> str:
    """Return the state, with the silence of a pipeline whose process is gone."""
    is_gone = row["state"] in ("starting", "running") and row["silent_s"] > PIPELINE_SILENT_S
    return f"{row['state']}, silent for {row['silent_s']:.0f} s" if is_gone else row["state"]


@contextmanager
def _registry(settings: "Settings") -> Generator["Registry"]:
    from skep.app.processes.database import join_database
    from skep.spark.pipelines.registry import Registry

    with join_database(settings) as database:
        registry = Registry(database.dsn)
        try:
            yield registry
        finally:
            registry.close()
