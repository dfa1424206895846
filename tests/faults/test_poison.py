"""A request that breaks the call it travels in fails alone."""

import asyncio
import logging

import pytest

from skep.engine import driver
from tests.faults.support.in_process import item, running

POISON = b'"poison"'


@pytest.fixture
def sql(arun, sql):
    """A connection to a database in which a certain payload breaks every push that carries it."""
    arun(
        sql.execute(
            """
            create function public.choke() returns trigger language plpgsql as $$
            begin
              if position('poison' in convert_from(new.body, 'UTF8')) > 0 then
                raise exception 'choked';
              end if;
              return new;
            end $$;
            create trigger choke before insert on skep.segment
              for each row execute function public.choke();
            """
        )
    )
    return sql


async def stored(sql):
    query = 'select partition, transaction_id from skep.message order by partition, "offset"'
    return [tuple(row) for row in await sql.fetch(query)]


async def test_among_many_pushes_only_the_poisonous_one_fails(database_url, sql, caplog):
    async with running(database_url) as broker:
        await broker.push(*(item("hive", "0", partition=name) for name in "abc"))

        answers = await asyncio.gather(
            *(
                broker.push(
                    item(
                        "hive",
                        f"{number}",
                        partition="abc"[number % 3],
                        payload=POISON if number == 14 else b"{}",
                    )
                )
                for number in range(1, 31)
            )
        )

    statuses = [results[0]["status"] for results in answers]
    assert statuses == ["failed" if number == 14 else "queued" for number in range(1, 31)]
    assert await stored(sql) == [
        (name, f"{number}")
        for name, first in (("a", 3), ("b", 1), ("c", 2))
        for number in [0, *range(first, 31, 3)]
        if number != 14
    ]
    told = [each.levelno for each in caplog.records if each.name == driver.__name__]
    assert told == [logging.ERROR], caplog.text


async def test_requests_answered_before_the_call_broke_are_not_sent_again_as_nothing(
    database_url, sql
):
    # The duplicate is answered from the cache; what is left of its request is an empty push.
    async with running(database_url) as broker:
        await broker.push(item("hive", "a"))

        duplicate, poisonous = await asyncio.gather(
            broker.push(item("hive", "a")), broker.push(item("hive", "b", payload=POISON))
        )
        (after,) = await broker.push(item("hive", "c"))

    assert duplicate[0]["status"] == "duplicate"
    assert poisonous[0]["status"] == "failed"
    assert after["status"] == "queued"
    assert await stored(sql) == [("a", "a"), ("a", "c")]
    assert await sql.fetchval("select count(*) from skep.segment where last < first") == 0
