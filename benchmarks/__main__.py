"""The command line of the benchmark. `python -m benchmarks --help`."""

import signal
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer
import uvloop
from rich.console import Console
from rich.text import Text

from benchmarks.against import (
    Side,
    compare,
    packages_here,
    packages_of,
    print_comparison,
    write_comparison,
)
from benchmarks.bench import Sizes
from benchmarks.errors import BenchmarkError
from benchmarks.goals import COMPARED, GOALS, STANDARD_CONNECTIONS, STANDARD_PAYLOAD_BYTES, select
from benchmarks.machine import machine_facts, software_versions, source_commit
from benchmarks.report import print_run, write_json
from benchmarks.run import Order, run_all
from benchmarks.scenarios import SCENARIOS, Scenario
from benchmarks.stack import DEFAULT_SERVER_COMMAND, Layout, Stack, foreign_stack, own_stack
from skep.model.errors import SkepError

_RESULTS = Path(__file__).parent / "results"
_PIPE_WIDTH = 160
_QUICK_SECONDS = 2.0
_QUICK_BACKLOG = 400_000


def main(
    only: Annotated[
        list[str] | None,
        typer.Option(help="Scenario or goal to run, also as a pattern (push-10*). Repeatable."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.5, max=600, help="Length of a window.")] = 5.0,
    connections: Annotated[
        int, typer.Option(min=1, max=150, help="Connections that carry the load.")
    ] = STANDARD_CONNECTIONS,
    payload_bytes: Annotated[
        int, typer.Option(min=12, max=1_000_000, help="Size of a message's payload.")
    ] = STANDARD_PAYLOAD_BYTES,
    repeat: Annotated[int, typer.Option(min=1, max=50, help="Rounds; the median counts.")] = 1,
    backlog: Annotated[
        int, typer.Option(min=10_000, help="Messages that the deep pop scenarios find.")
    ] = Sizes().deep_backlog,
    generators: Annotated[
        int, typer.Option(min=1, max=16, help="Processes that share the load.")
    ] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only what a goal needs, windows of two seconds.")
    ] = False,
    url: Annotated[
        str | None, typer.Option(help="A broker that runs already; needs --database-url.")
    ] = None,
    database_url: Annotated[
        str | None, typer.Option(help="The database of that broker, for WAL, commits and CPU.")
    ] = None,
    server_command: Annotated[
        str, typer.Option(help="How to start the broker under test.")
    ] = DEFAULT_SERVER_COMMAND,
    postgres_bin: Annotated[
        Path | None, typer.Option(help="Directory of another PostgreSQL's programs.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Worker processes.")] = 1,
    instances: Annotated[
        int, typer.Option(min=1, max=16, help="Brokers on the database; connections go round.")
    ] = 1,
    against: Annotated[
        str | None,
        typer.Option(help="A commit or a checkout's folder: run both in turns, show the ratios."),
    ] = None,
    against_workers: Annotated[
        int | None, typer.Option(min=1, max=64, help="Workers of that one; as many by default.")
    ] = None,
    against_instances: Annotated[
        int | None, typer.Option(min=1, max=16, help="Brokers of that one; as many by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides payloads and the order of partitions.")] = 1,
    output: Annotated[
        Path | None, typer.Option(help="JSON file; by default one in benchmarks/results.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="Show the scenarios and goals, run nothing.")
    ] = False,
) -> None:
    """Measure what a message costs and hold it against the goals."""
    console = _console()
    scenarios = _chosen(only or (list(COMPARED) if against else []), is_quick=quick)
    if show or not scenarios:
        _list_everything(console)
        raise typer.Exit(0 if show else 2)
    if (url is None) != (database_url is None):
        raise typer.BadParameter("--url and --database-url go together")
    sizes = Sizes(
        seconds=min(seconds, _QUICK_SECONDS) if quick else seconds,
        connections=connections,
        payload_bytes=payload_bytes,
        generators=generators,
        deep_backlog=min(backlog, _QUICK_BACKLOG) if quick else backlog,
        seed=seed,
    )
    order = Order(scenarios, sizes, repeat, floor_s=0.5 if quick else 1.5)
    _end_on_sigterm()
    began = datetime.now(UTC)
    path = output or _RESULTS / f"bench-{began:%Y%m%d-%H%M%S}.json"
    layout = Layout(workers, instances)
    try:
        if against is not None:
            other = Layout(against_workers or workers, against_instances or instances)
            with packages_of(against) as source:
                old, new = Side("old", source, other), Side("new", packages_here(), layout)
                result = compare(old, new, order, console, postgres_bin=postgres_bin)
            print_comparison(result, console)
            write_comparison(result, {**_facts(None, began), "against": against}, path)
        else:
            with _stack(url, database_url, server_command, postgres_bin, layout) as stack:
                facts = _facts(stack.data_dir, began)
                result = uvloop.run(run_all(stack, order, facts, console))
            print_run(result, console)
            write_json(result, path)
    except (BenchmarkError, SkepError) as error:
        console.print(Text(str(error), style="red"))
        raise typer.Exit(1) from error
    if (connections, payload_bytes) != (STANDARD_CONNECTIONS, STANDARD_PAYLOAD_BYTES):
        console.print("The goals are stated for the standard load; this run had another.")
    console.print(f"Everything measured is in {path}")
    raise typer.Exit(1 if result.has_errors else 0)


def _facts(data_dir: Path | None, began: datetime) -> dict[str, Any]:
    return {
        "began_at": began.isoformat(timespec="seconds"),
        "command": ["python", "-m", "benchmarks", *_without_passwords(sys.argv[1:])],
        "commit": source_commit(),
        "machine": machine_facts(data_dir),
        "versions": software_versions(),
    }


def _console() -> Console:
    console = Console(highlight=False)
    # A pipe has no width of its own; the tables want this much.
    return console if console.is_terminal else Console(highlight=False, width=_PIPE_WIDTH)


def _chosen(patterns: list[str], *, is_quick: bool) -> list[Scenario]:
    patterns = patterns or ([goal.name for goal in GOALS] if is_quick else ["*"])
    names = select([scenario.name for scenario in SCENARIOS], patterns)
    return [scenario for scenario in SCENARIOS if scenario.name in names]


def _stack(
    url: str | None,
    database_url: str | None,
    server_command: str,
    postgres_bin: Path | None,
    layout: Layout,
) -> AbstractContextManager[Stack]:
    if url is not None and database_url is not None:
        return nullcontext(foreign_stack(url, database_url))
    return own_stack(server_command, postgres_bin=postgres_bin, layout=layout)


def _list_everything(console: Console) -> None:
    console.print("Scenarios:")
    for scenario in SCENARIOS:
        console.print(f"  {scenario.name:22} {scenario.title}")
    console.print("Goals:")
    for goal in GOALS:
        console.print(f"  {goal.name:22} {goal.title}: {goal.limit_text}")


def _end_on_sigterm() -> None:
    """Turn SIGTERM into an exception, so that what was started is also stopped."""

    def end(signum: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + signum)

    signal.signal(signal.SIGTERM, end)


def _without_passwords(arguments: list[str]) -> list[str]:
    return ["***" if "://" in argument and "@" in argument else argument for argument in arguments]


if __name__ == "__main__":
    typer.run(main)
