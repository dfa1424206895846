"""`skep pipeline`: run computations between queues on Spark, show them, stop them."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from skep.cli.shared.examples import examples
from skep.cli.shared.options import DatabaseFlags, with_database_flags
from skep.cli.shared.output import Output
from skep.cli.shared.pages import one_page, print_pages
from skep.cli.shared.stopping import stop_signals
from skep.cli.spark.options import Master
from skep.model.errors import NotFound, Refused
from skep.model.limits import PIPELINE_SILENT_S

if TYPE_CHECKING:
    from skep.settings import Settings
    from skep.spark.pipelines.registry import Progress, Registry

pipeline_app: Final = typer.Typer(
    name="pipeline", help="Compute between queues on Spark.", no_args_is_help=True
)

Name: TypeAlias = Annotated[str, typer.Argument(help="The name in the pipeline's definition.")]

LOOK_S: Final = 0.2
_COLUMNS: Final = (
    "name",
    "state",
    "messages",
    "messagesPerSecond",
    "lagMessages",
    "lastError",
)


@pipeline_app.command(
    epilog=examples("skep pipeline run revenue.yaml", "skep pipeline run large.py --available-now")
)
@with_database_flags
def run(
    flags: DatabaseFlags,
    file: Annotated[
        str,
        typer.Argument(help="`pipeline.yaml`, `file.py`, `file.py:name` or `package.module:name`."),
    ],
    *,
    master: Master = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Where progress is kept; by default `pipelines/NAME` in the data dir."),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Forget the checkpoint and begin anew.")
    ] = False,
    available_now: Annotated[
        bool, typer.Option("--available-now", help="End when everything there is has been read.")
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
    with join_database(settings) as database, _bar(pipeline.name) as show, stop_signals() as stop:
        plan = RunPlan(
            url=database.dsn,
            checkpoint=checkpoint or checkpoint_of(pipeline, settings.data_dir),
            master=master or DEFAULT_MASTER,
            is_reset=reset,
        )
        done = PipelineRun(pipeline, transform, plan, on_progress=show).run(stop)
    typer.echo(f"{pipeline.name}: read {done.messages:,} messages in {done.batches:,} batches")


@pipeline_app.command(name="list")
@with_database_flags
def list_pipelines(flags: DatabaseFlags, *, output: Output = "table") -> None:
    """List the pipelines that this database knows."""
    with _registry(flags.settings()) as registry:
        rows = [_summary(row) for row in registry.listed()]
    print_pages(one_page(rows), _COLUMNS, output, what="pipeline has run on this database")


@pipeline_app.command()
@with_database_flags
def status(
    flags: DatabaseFlags,
    name: Name,
) -> None:
    """Show all that is known of a pipeline."""
    with _registry(flags.settings()) as registry:
        row = registry.find(name)
    if row is None:
        raise NotFound(f"there is no pipeline {name}; `skep pipeline list` shows them")
    shown = {**row, "state": _state(row)}
    for column in ("name", "silent_s", "total", "should_stop"):
        del shown[column]
    typer.echo(name)
    for column, value in shown.items():
        if value is not None:
            typer.echo(f"  {column.replace('_', ' ')}: {value}")


@pipeline_app.command()
@with_database_flags
def stop(
    flags: DatabaseFlags,
    name: Name,
    *,
    wait: Annotated[
        float, typer.Option(help="Seconds to wait until it has stopped; 0 only asks.", min=0)
    ] = 30.0,
) -> None:
    """Stop a pipeline, wherever it runs."""
    with _registry(flags.settings()) as registry:
        asked = registry.stop(name)
        if asked["state"] not in ("starting", "running"):
            typer.echo(f"{name} does not run: it is {asked['state']}")
            return
        if asked["silent_s"] > PIPELINE_SILENT_S:
            raise Refused(
                f"pipeline {name} has not reported for {asked['silent_s']:.0f} s: whoever ran it "
                "is gone. Run it again to go on where it was"
            )
        if _has_stopped(registry, name, wait):
            typer.echo(f"{name} has stopped")
        elif wait:
            raise Refused(f"pipeline {name} was asked to stop and has not done so in {wait:g} s")
        else:
            typer.echo(f"{name} was asked to stop")


def _summary(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a list shows of a pipeline, by the names of the wire."""
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
        time.sleep(LOOK_S)
    return False


def _state(row: Mapping[str, Any]) -> str:
    """Return the state, with a word about those that nobody runs any more."""
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


@contextmanager
def _bar(name: str) -> Generator[Any]:
    """Yield what shows progress in the terminal: how much is read, how much is left, how fast."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=None, rate="starting Spark")

        def show(progress: "Progress") -> None:
            rate = f"{progress.rate:,.0f} messages/s, {progress.batches:,} batches"
            total = progress.messages + (progress.lag_messages or 0)
            bar.update(task, completed=progress.messages, total=total or None, rate=rate)

        yield show
