"""How long the first page of every listing takes when there are a hundred thousand partitions.

    python -m benchmarks.listings

Builds a database of 100,000 partitions with three groups each, starts the broker on it and calls
every GET route of its OpenAPI document again and again, so that a new route is measured as soon as
it is documented. A route passes when the slowest of its answers came in time. Routes that deliver
messages, stream, or need an id that nobody can guess are left out, and said to be.
"""

import http.client
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import asyncpg
import typer
import uvloop
from rich.console import Console
from rich.table import Table

from benchmarks.stack import Stack, own_stack
from benchmarks.stats import percentile
from skep.model.ids import message_id, partition_uuid

GOAL_MS = 200.0
BIG = "big"
"""The queue that has most of the partitions; the others share the rest."""
SMALL_QUEUES = 10
SHARE_OF_BIG = 0.8
GROUPS = ("__QUEUE_MODE__", "bees", "wasps")
DEAD_LETTERS = 10_000
ANSWER_S_MAX = 30.0
SERVER_COMMAND = "{python} -m skep serve --workers 1 --port {port} --database-url {database_url}"
NO_LISTINGS = (
    "/api/v1/pop",
    "/api/v1/stream",
    "/api/v1/dashboard/live",
    "/health",
    "/livez",
    "/readyz",
    "/metrics",
)
"""Routes that begin like this deliver messages, stay open or are no listings."""
ALSO_NEEDED = {"/seek/preview": {"to": "end"}}
"""What routes that end like this need although the document calls it optional: one of several."""
PIPE_WIDTH = 120

_FILL_PARTITIONS = """
insert into skep.partition (queue_id, name, head, pushed_at)
select q.id, 'partition-' || n, 2, now() - n * interval '30 milliseconds'
from skep.queue q, generate_series(1, $2::integer) n where q.name = $1
"""
_FILL_SEGMENTS = """
insert into skep.segment (partition_id, first, last, queue_id, created_at, xid, keys, body)
select p.id, 1, 2, p.queue_id, p.pushed_at, p.id::text::xid8, decode(repeat(md5(p.name), 2), 'hex'),
       convert_to(format(
         '[{"transactionId":"%s-1","traceId":null,"producerSub":null,"data":{"n":1}},'
         '{"transactionId":"%s-2","traceId":null,"producerSub":null,"data":{"n":2}}]', p.id, p.id),
         'UTF8')
from skep.partition p
"""
# A third of the partitions is ready, a third under lease, a third has nothing left to read.
_FILL_CURSORS = """
insert into skep.cursor (
  partition_id, group_id, queue_id, acked, leased_from, leased, lease_id, available_at)
select p.id, g.id, p.queue_id, case p.id % 3 when 2 then 2 else 0 end, 0,
       case p.id % 3 when 1 then 2 end, gen_random_uuid(),
       case p.id % 3 when 0 then now() when 1 then now() + interval '1 hour' end
from skep.partition p join skep.consumer_group g using (queue_id)
"""
_FILL_DEAD_LETTERS = """
insert into skep.dead_letter (
  partition_id, group_id, queue_id, message_offset, transaction_id, envelope, error, failures,
  created_at, failed_at)
select c.partition_id, c.group_id, c.queue_id, 1, c.partition_id || '-1',
       '{"transactionId":"x","traceId":null,"producerSub":null,"data":{"n":1}}', 'no reason', 3,
       now(), now()
from skep.cursor c limit $1
"""


@dataclass(frozen=True, slots=True)
class Call:
    """One way to ask a route for its first page."""

    route: str
    target: str


@dataclass(frozen=True, slots=True)
class Timing:
    """How the answers to one call came."""

    route: str
    status: int
    milliseconds: Sequence[float]
    """Ascending."""

    @property
    def is_met(self) -> bool:
        return self.status == http.client.OK and self.milliseconds[-1] < GOAL_MS


def main(
    partitions: Annotated[int, typer.Option(min=100, help="Partitions in all.")] = 100_000,
    repeat: Annotated[int, typer.Option(min=1, max=1000, help="Calls of each route.")] = 15,
) -> None:
    """Measure every listing; the exit code is 1 if one is too slow."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    with own_stack(SERVER_COMMAND) as stack:
        values = uvloop.run(fill(stack.database_url, partitions))
        document = json.loads(_get(stack, "/openapi.json")[1])
        calls, left_out = plan_calls(document, values)
        timings = [measure(stack, call, repeat) for call in calls]
    console.print(_table(timings, partitions))
    for reason in left_out:
        console.print(f"left out: {reason}")
    is_met = all(timing.is_met for timing in timings)
    console.print("PASS" if is_met else "FAIL")
    sys.exit(0 if is_met else 1)


async def fill(database_url: str, partitions: int) -> dict[str, str]:
    """Build the database; return a value for each parameter that a route may need."""
    connection = await asyncpg.connect(database_url)
    try:
        of_big = int(partitions * SHARE_OF_BIG)
        of_small = (partitions - of_big) // SMALL_QUEUES
        sizes = {BIG: of_big, **{f"small-{n}": of_small for n in range(SMALL_QUEUES)}}
        for queue, size in sizes.items():
            for group in GROUPS:
                await connection.execute(
                    "select skep.provision_group($1, $2, 'all', null)", queue, group
                )
            await connection.execute(_FILL_PARTITIONS, queue, size)
        await connection.execute(_FILL_SEGMENTS)
        await connection.execute(_FILL_CURSORS)
        await connection.execute(_FILL_DEAD_LETTERS, DEAD_LETTERS)
        await connection.execute("vacuum analyze")
        partition = await connection.fetchval("select min(id) from skep.partition")
        name = await connection.fetchval("select name from skep.partition where id = $1", partition)
    finally:
        await connection.close()
    return {
        "queue": BIG,
        "group": GROUPS[1],
        "consumerGroup": GROUPS[1],
        "partition": name,
        "partitionId": partition_uuid(partition),
        "transactionId": message_id(partition, 1),
        "traceName": "nothing",
    }


def plan_calls(document: dict[str, Any], values: dict[str, str]) -> tuple[list[Call], list[str]]:
    """Choose what to call: each GET route as it is, and once more for the big queue alone."""
    calls: list[Call] = []
    left_out: list[str] = []
    for path, operations in sorted(document["paths"].items()):
        if "get" not in operations or path.startswith(NO_LISTINGS):
            continue
        parameters = operations["get"].get("parameters", [])
        unknown = [
            each["name"] for each in parameters if each["required"] and each["name"] not in values
        ]
        if unknown:
            left_out.append(f"{path} (nothing to give as {', '.join(unknown)})")
            continue
        calls += _variants(path, parameters, values)
    return calls, left_out


def _variants(
    path: str, parameters: Sequence[dict[str, Any]], values: dict[str, str]
) -> Iterator[Call]:
    target = path
    query = next((more for end, more in ALSO_NEEDED.items() if path.endswith(end)), {}).copy()
    for each in parameters:
        if each["in"] == "path":
            target = target.replace(f"{{{each['name']}}}", quote(values[each["name"]], safe=""))
        elif each["required"]:
            query[each["name"]] = values[each["name"]]
    yield Call(path, f"{target}?{urlencode(query)}")
    names = {each["name"] for each in parameters if each["in"] == "query"}
    if "queue" in names and "queue" not in query:
        yield Call(f"{path}?queue=", f"{target}?{urlencode({**query, 'queue': BIG})}")


def measure(stack: Stack, call: Call, repeat: int) -> Timing:
    """Ask one after the other; the first answers, which also make plans, count as the others."""
    answers = [_get(stack, call.target) for _ in range(repeat)]
    statuses = {status for status, _, _ in answers}
    return Timing(call.route, max(statuses), sorted(took for _, _, took in answers))


def _get(stack: Stack, target: str) -> tuple[int, bytes, float]:
    """Return status, body and how many milliseconds they took to come."""
    connection = http.client.HTTPConnection(
        stack.target.host, stack.target.port, timeout=ANSWER_S_MAX
    )
    try:
        connection.connect()
        began_s = time.perf_counter()
        connection.request("GET", target)
        answer = connection.getresponse()
        body = answer.read()
        return answer.status, body, (time.perf_counter() - began_s) * 1000
    finally:
        connection.close()


def _table(timings: Sequence[Timing], partitions: int) -> Table:
    table = Table(title=f"First pages at {partitions:,} partitions x {len(GROUPS)} groups")
    table.add_column("route", overflow="fold")
    for heading in ("status", "p50 ms", "max ms", ""):
        table.add_column(heading, justify="right")
    for timing in timings:
        table.add_row(
            timing.route,
            str(timing.status),
            f"{percentile(timing.milliseconds, 50):.1f}",
            f"{timing.milliseconds[-1]:.1f}",
            "PASS" if timing.is_met else "FAIL",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
