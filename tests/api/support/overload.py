"""Brokers in trouble on purpose: no room for pushes, and processors that stand still.

A session of the test holds what a broker needs; so everything stays as it is until the test says.
The brokers must have one mebibyte for requests.
"""

import asyncio
import json
from contextlib import asynccontextmanager

from tests.sql.support.waiting import eventually
from tests.support.broker import until_blocked_by

TIGHT = {"engine_weight_mib": 1, "overload_wait_s": 0.5}
"""Settings of a broker with little memory for requests, and little patience."""

PREFER = "Prefer: respond-async\r\n"
BOUND_S = 60
FREEZER = 4711
_FREEZE = f"""
create or replace function public.stand_still() returns trigger language plpgsql as $$
begin
  perform pg_advisory_xact_lock_shared({FREEZER});
  return null;
end $$;
create or replace trigger stand_still before update on skep.operation
execute function public.stand_still();
"""
# What stands still holds the operations that it has claimed, until it runs into its lock timeout.
LET_GO = f"""
select pg_cancel_backend(pid) from pg_locks
where locktype = 'advisory' and objid = {FREEZER} and not granted
"""


@asynccontextmanager
async def overload(broker, queue):
    """Keep a push in flight that fills what pushes may have."""
    name = f"{queue}-full"
    async with broker.sql() as sql, broker.connect() as filler:
        await filler.push_payloads(name, 0)
        async with sql.transaction():
            await sql.execute(
                "select from skep.partition p join skep.queue q on q.id = p.queue_id"
                " where q.name = $1 for update of p",
                name,
            )
            stuck = asyncio.ensure_future(filler.push_payloads(name, "x" * 600_000))
            await until_blocked_by(sql)
            yield
        await asyncio.wait_for(stuck, BOUND_S)


@asynccontextmanager
async def standstill(broker):
    """Let operations be accepted, and none be carried out."""
    async with broker.sql() as sql:
        await sql.execute(_FREEZE)
        await sql.execute(f"select pg_advisory_lock({FREEZER})")
        yield
        await sql.execute(f"select pg_advisory_unlock({FREEZER})")


async def push(client, queue, *values, partition="Default", headers=PREFER, **members):
    """Push values, by default as somebody who takes a 202."""
    items = [
        {"queue": queue, "partition": partition, "payload": value, **members} for value in values
    ]
    body = json.dumps({"items": items}).encode()
    return await client.call("POST", "/api/v1/push", body, headers)


async def accepted(client, queue, *values, **options):
    """Push values that are accepted as operations; return the answer."""
    answer = await push(client, queue, *values, **options)
    assert answer.status == 202, answer
    return json.loads(answer.body)


async def read(client, path, status=200):
    answer = await client.call("GET", f"/api/v1/operations{path}")
    assert answer.status == status, answer
    return json.loads(answer.body)


async def ended(client, operation_id):
    """Return an operation once it does not wait any more."""

    async def look():
        found = await read(client, f"/{operation_id}")
        return found if found["status"] not in {"waiting", "processing"} else None

    return await eventually(look)
