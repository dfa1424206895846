"""What the Python client costs beside the raw load generator. `python -m benchmarks.client`.

Both push the same number of messages, 100 per request, and both consume and acknowledge them, over
as many connections, on the same broker, in turns. What counts is the CPU time of the process that
sends, per message: the generator renders its requests ahead and looks at answers no further than it
must, so it is the floor of what Python can do. The goal is 1.5 times that. The client runs on
uvloop like the generator, message by message and by batch, and for comparison by WebSocket, on
asyncio's own loop and with threads. Rounds are short against the noise of a shared machine, so the
times are the median of the rounds' ratios, each of two runs beside each other.
"""

import asyncio
import secrets
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias, get_args

import msgspec
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.errors import BenchmarkError, ScenarioFailed
from benchmarks.load import Target, running
from benchmarks.plan import PopRole, PushRole, Role
from benchmarks.stack import DEFAULT_SERVER_COMMAND, own_stack
from skep.model.errors import SkepError

GOAL: Final = 1.5
CONNECTIONS: Final = 4
ITEMS: Final = 100
PARTITIONS: Final = 100
PAYLOAD_BYTES: Final = 100
_DONE_CHECK_S: Final = 0.02

Kind: TypeAlias = Literal["uvloop", "uvloop by batch", "uvloop by websocket", "asyncio", "threads"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Cost(msgspec.Struct):
    """CPU microseconds per message, of the sending process."""

    push_us: float
    consume_us: float


async def measure_generator(target: Target, queue: str, messages: int) -> Cost:
    """Let the raw generator push and consume."""
    push = PushRole(
        name="push",
        connections=CONNECTIONS,
        queue=queue,
        partitions=PARTITIONS,
        items=ITEMS,
        payload_bytes=PAYLOAD_BYTES,
        seed=secrets.randbits(30),
        run_length=ITEMS,
        request_limit=messages // ITEMS,
    )
    pop = PopRole(
        name="pop",
        connections=CONNECTIONS,
        queue=queue,
        batch=ITEMS,
        partitions=10,
        auto_ack=False,
        wait_ms=1_000,
    )
    return Cost(
        await _generator_us(target, push, messages), await _generator_us(target, pop, messages)
    )


async def _generator_us(target: Target, role: Role, messages: int) -> float:
    async with running(target, [role]) as load:
        first = await load.snapshot()
        while (last := await load.snapshot()).roles[role.name].messages < messages:
            if last.errors:
                raise ScenarioFailed(f"the generator failed: {last.examples}")
            await asyncio.sleep(_DONE_CHECK_S)
    done = last.roles[role.name].messages - first.roles[role.name].messages
    return (last.cpu_s - first.cpu_s) / done * 1e6


def measure_client(target: Target, queue: str, messages: int, kind: Kind) -> Cost:
    """Let the client push and consume, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.client_process"]
    command += [f"http://{target.host}:{target.port}", queue, str(messages), kind]
    done = subprocess.run(command, capture_output=True, check=False, timeout=600)
    if done.returncode:
        raise ScenarioFailed(done.stderr.decode().strip().rpartition("\n")[2])
    return msgspec.json.decode(done.stdout, type=Cost)


def _table(costs: dict[str, list[Cost]]) -> Table:
    table = Table(title="CPU microseconds per message, of the process that sends (median)")
    for name in ("who", "push", "times the generator", "consume and ack", "times the generator "):
        table.add_column(name, justify="left" if name == "who" else "right")
    floors = costs["generator"]
    for name, rounds in costs.items():
        cost, times = _median(rounds), _median(list(map(_times, rounds, floors)))
        table.add_row(
            name,
            f"{cost.push_us:.2f}",
            f"{times.push_us:.2f}",
            f"{cost.consume_us:.2f}",
            f"{times.consume_us:.2f}",
        )
    return table


def _times(cost: Cost, floor: Cost) -> Cost:
    return Cost(cost.push_us / floor.push_us, cost.consume_us / floor.consume_us)


def _median(costs: list[Cost]) -> Cost:
    return Cost(
        statistics.median(cost.push_us for cost in costs),
        statistics.median(cost.consume_us for cost in costs),
    )


def main(
    messages: Annotated[int, typer.Option(help="Messages per round and sender.")] = 200_000,
    repeat: Annotated[int, typer.Option(help="Rounds.")] = 3,
    kind: Annotated[
        list[str] | None, typer.Option(help="Only these; may be repeated. All by default.")
    ] = None,
    postgres_bin: Annotated[Path | None, typer.Option(help="Programs of PostgreSQL.")] = None,
) -> None:
    """Compare the client with the raw load generator."""
    console = Console()
    costs: dict[str, list[Cost]] = {}
    try:
        with own_stack(DEFAULT_SERVER_COMMAND, postgres_bin=postgres_bin) as stack:
            for number in range(repeat):
                queue = f"bench-client-{number}"
                target = stack.target
                generator = uvloop.run(measure_generator(target, f"{queue}-raw", messages))
                costs.setdefault("generator", []).append(generator)
                for each in KINDS:
                    if kind and each not in kind:
                        continue
                    name = f"{queue}-{each.replace(' ', '-')}"
                    cost = measure_client(target, name, messages, each)
                    costs.setdefault(f"client, {each}", []).append(cost)
    except (BenchmarkError, SkepError) as error:
        console.print(f"[red]{error}")
        raise typer.Exit(1) from error
    console.print(_table(costs))
    console.print(f"Goal: at most {GOAL} times the generator, on uvloop.")


if __name__ == "__main__":
    typer.run(main)
