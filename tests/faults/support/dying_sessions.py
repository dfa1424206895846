"""Transactions whose sessions die in them, wherever that is worst."""

from contextlib import asynccontextmanager

import asyncpg

from skep.db.schema.migrate import migrate
from tests.faults.support.in_process import item, running
from tests.support.broker import ack_item
from tests.support.proxy import Proxy

TABLES = {
    "when a partition is locked": ("partition", "update"),
    "when messages are stored": ("segment", "insert"),
    "when the cursor moves": ("cursor", "update"),
    "when it is put on record": ("settled_transaction", "insert"),
}
POINTS = [*TABLES, "at the commit", "after the commit"]
KILLER = """
create sequence if not exists public.kills;
select setval('public.kills', 1000);
create table public.user_row (id uuid primary key);
create function public.die() returns trigger language plpgsql as $$
begin
  if nextval('public.kills') = 1 then
    perform pg_terminate_backend(pg_backend_pid());
  end if;
  return null;
end $$;
create function public.note() returns trigger language plpgsql as $$
begin
  insert into public.user_row values (new.id);
  return null;
end $$;
create trigger note after insert on skep.settled_transaction
  for each row execute function public.note();
"""


async def plant_death(sql, point):
    """Let the sessions that transact in this database die at a point, when they are told to."""
    await sql.execute(KILLER)
    if point == "at the commit":
        await sql.execute("""
            create constraint trigger die after insert on public.user_row
            deferrable initially deferred for each row execute function public.die()""")
    elif point in TABLES:
        table, event = TABLES[point]
        await sql.execute(
            f"create trigger die after {event} on skep.{table} "
            "for each row execute function public.die()"
        )


@asynccontextmanager
async def deadly_database(server, name, point):
    """Make a database of its own where sessions die; yield the way to it, and around it."""
    admin = await asyncpg.connect(server.dsn)
    await admin.execute(f'create database "{name}"')
    url = f"{server.dsn.rpartition('/')[0]}/{name}"
    await migrate(url)
    sql, proxy = await asyncpg.connect(url), Proxy(url)
    await proxy.open()
    try:
        await plant_death(sql, point)
        yield proxy, sql
    finally:
        await proxy.close()
        await sql.close()
        await admin.execute(f'drop database "{name}" with (force)')
        await admin.close()


async def transact_repeatedly(proxy, sql, queue, point, *, times):
    """Acknowledge, push three and write a row of the user; each time the session dies once."""
    sink = f"{queue}-sink"
    async with running(proxy.url) as broker:
        await broker.push(*(item(queue, f"{n}") for n in range(times)))
        for number in range(times):
            (message,) = await broker.pop(queue)
            await sql.execute("select setval('public.kills', 1, false)")
            if point == "after the commit":
                await sql.execute("select setval('public.kills', 1)")
                proxy.at_next("skep.transact(", "after")
            answer = await broker.commit(*operations_on(message, sink, number))
            assert answer["success"], answer
            assert await sql.fetchval("select is_called from public.kills"), "nobody died"
        assert proxy.fault_for("skep.transact(") is None, "nobody died"
        nothing = await broker.pop(queue)
    query = 'select transaction_id from skep.message where queue = $1 order by "offset"'

    assert nothing == []
    names = [f"{number}-{part}" for number in range(times) for part in range(3)]
    assert [row[0] for row in await sql.fetch(query, sink)] == names
    assert await sql.fetchval("select count(*) from public.user_row") == times


def operations_on(message, sink, number):
    items = [
        {"queue": sink, "transactionId": f"{number}-{part}", "payload": part} for part in range(3)
    ]
    return {"type": "ack", **ack_item(message)}, {"type": "push", "items": items}
