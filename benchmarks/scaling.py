"""Simulate more cores than there are, from costs measured on two.

`python -m benchmarks.scaling` shows 2 to 16 cores.

A push costs the worker something per message (HTTP, keys, answer), per call and per segment;
PostgreSQL something per call, per segment and per message, and a place in the disk's log. Stations
in a closed loop of clients: each worker is one core, PostgreSQL's backends share the rest, commits
wait for the log, and calls of different workers that meet in partitions wait for each other. The
throughput is that of the fullest station; where clients are few, that of their round trips.

Mean values only, no event is simulated: it tells where the wall is, not how long one waits in
front of it. Against the measured costs it is 1 to 15 % off for small requests, and a third too low
for requests of a hundred.
"""

from dataclasses import dataclass
from typing import Final

import typer


@dataclass(frozen=True, slots=True)
class Costs:
    """Microseconds of CPU, but for the flush. By default as measured on 18 November 2026."""

    request_us: float = 15.5
    """Of a worker: reading a request, finding its handler, writing the answer."""
    message_us: float = 2.0
    """Of a worker, for each message: its key, its envelope, its result."""
    call_us: float = 240.0
    """Of a worker, for each call."""
    segment_us: float = 7.0
    """Of a worker, for each partition in a call."""
    pg_call_us: float = 200.0
    pg_segment_us: float = 7.0
    pg_message_us: float = 0.5
    contested_us: float = 3.0
    """Of each, the worker and PostgreSQL, for a segment that others have pushed before."""
    cold_share: float = 0.15
    """How much longer code takes in several processes that share caches."""
    flush_us: float = 250.0
    """Until the log is on disk; one flush carries the commits of all who wait."""
    message_bytes: int = 250
    """In the log, at 100 bytes of payload."""
    disk_bytes_per_s: float = 500e6


@dataclass(frozen=True, slots=True)
class Shape:
    """A load, and what carries it."""

    cores: int
    workers: int
    items: int
    """Messages per request; each goes to a partition of its own."""
    partitions: int = 100
    clients: int = 1_000
    is_one_engine: bool = False
    """Workers that only speak HTTP, in front of one that fuses and calls."""
    hop_us: float = 2.5
    """A message's way from such a worker to the engine and back, on each side."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a load comes to, and what stops it."""

    messages_per_s: float
    wall: str
    worker_us: float
    """CPU per message, of all workers."""
    postgres_us: float


CALL_MESSAGES_MAX: Final = 4_096


def forecast(shape: Shape, costs: Costs) -> Forecast:
    """Return the throughput of a closed loop, and the station that is full."""
    engines = 1 if shape.is_one_engine else shape.workers
    fused = shape.clients / engines
    in_call = min(fused * shape.items * 0.8, CALL_MESSAGES_MAX)
    segments = expected_segments(in_call, shape.partitions)
    contested = costs.contested_us * segments if engines > 1 else 0.0
    cold = 1 + costs.cold_share * (shape.workers > 1)

    front_us = cold * (costs.request_us / shape.items + costs.message_us)
    engine_us = cold * (costs.call_us + costs.segment_us * segments + contested) / in_call
    pg_call_us = (
        costs.pg_call_us + costs.pg_segment_us * segments + contested
        + costs.pg_message_us * in_call
    )  # fmt: skip
    postgres_us = pg_call_us / in_call
    hop_us = shape.hop_us if shape.is_one_engine and shape.workers > 1 else 0.0

    # Calls meet in partitions: where each covers most of them, one works while the others wait.
    covered = segments / shape.partitions
    lock_us = covered * (pg_call_us + costs.flush_us) / in_call
    free_cores = max(shape.cores - shape.workers, 1)
    limits = {
        "CPU of PostgreSQL": 1e6 * free_cores / postgres_us,
        "partition locks and commits": 1e6 / lock_us,
        "log on disk": costs.disk_bytes_per_s / costs.message_bytes,
    }
    if shape.is_one_engine:
        fronts = max(shape.workers - 1, 1)
        limits["the engine's core"] = 1e6 / (engine_us + hop_us)
        limits["HTTP workers"] = 1e6 * fronts / (front_us + hop_us)
    else:
        limits["workers"] = 1e6 * shape.workers / (front_us + engine_us)
    wall = min(limits, key=lambda name: limits[name])
    return Forecast(limits[wall], wall, front_us + engine_us + 2 * hop_us, postgres_us)


def expected_segments(messages: float, partitions: int) -> float:
    """Return how many partitions so many messages fall into, thrown at random."""
    return partitions * (1 - (1 - 1 / partitions) ** messages)


def main(
    partitions: int = typer.Option(100, help="Partitions that all pushes spread over."),
    clients: int = typer.Option(1_000, help="Connections, each with one request in flight."),
) -> None:
    """Show what 2 to 16 cores come to, by workers and messages per request."""
    typer.echo(f"{'cores':>5} {'workers':>8} {'items':>6} {'messages/s':>12}  CPU us  wall")
    for items in (1, 10, 100):
        for cores in (2, 4, 8, 16):
            counts = sorted({1, cores // 4, cores // 2, 3 * cores // 4} - {0})
            for is_one_engine in (False, True):
                for workers in counts:
                    if is_one_engine and workers < 3:
                        continue
                    shape = Shape(
                        cores, workers, items, partitions, clients, is_one_engine=is_one_engine
                    )
                    found = forecast(shape, Costs())
                    name = f"1+{workers - 1}" if is_one_engine else str(workers)
                    cpu_us = found.worker_us + found.postgres_us
                    typer.echo(
                        f"{cores:>5} {name:>8} {items:>6} {found.messages_per_s:>12,.0f}"
                        f" {cpu_us:>7.1f}  {found.wall}"
                    )


if __name__ == "__main__":
    typer.run(main)
