"""Joining transactions of applications, whatever driver they use."""

import subprocess
import sys

import asyncpg
import psycopg
import pytest
import sqlalchemy

from skep.db.access.foreign import (
    NoTransaction,
    UnknownConnection,
    WrongCall,
    join,
    name_arguments,
    with_named_placeholders,
)
from skep.model.errors import BadRequest
from tests.enqueue.support.drivers import ASYNC, SYNC, configure_django

STATEMENT = "select $2::int * 2, $1::text || '%', $2::int % 2 as rest"
REFUSED = "select skep.stage('', null, $1::text)"


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_statement_runs_on_an_asynchronous_connection(enqueue_url, driver):
    async with ASYNC[driver](enqueue_url) as connection:
        [row] = await join(connection).fetch(STATEMENT, "a", 21)

    assert tuple(row) == (42, "a%", 1)


@pytest.mark.parametrize("driver", SYNC)
def test_a_statement_runs_on_a_synchronous_connection(enqueue_url, driver):
    with SYNC[driver](enqueue_url) as connection:
        [row] = join(connection).fetch_sync(STATEMENT, "a", 21)

    assert tuple(row) == (42, "a%", 1)


@pytest.mark.parametrize("driver", ASYNC)
async def test_a_statement_without_rows_returns_none_on_an_asynchronous_connection(
    enqueue_url, driver
):
    async with ASYNC[driver](enqueue_url) as connection:
        assert list(await join(connection).fetch("create temp table x (a int)")) == []


@pytest.mark.parametrize("driver", SYNC)
def test_a_statement_without_rows_returns_none_on_a_synchronous_connection(enqueue_url, driver):
    with SYNC[driver](enqueue_url) as connection:
        assert list(join(connection).fetch_sync("create temp table x (a int)")) == []


@pytest.mark.parametrize("driver", ASYNC)
async def test_what_skep_refuses_is_its_own_error_on_an_asynchronous_connection(
    enqueue_url, driver
):
    with pytest.raises(BadRequest, match=r"^a message needs a queue$"):
        async with ASYNC[driver](enqueue_url) as connection:
            await join(connection).fetch(REFUSED, "1")


@pytest.mark.parametrize("driver", SYNC)
def test_what_skep_refuses_is_its_own_error_on_a_synchronous_connection(enqueue_url, driver):
    with (
        pytest.raises(BadRequest, match=r"^a message needs a queue$"),
        SYNC[driver](enqueue_url) as connection,
    ):
        join(connection).fetch_sync(REFUSED, "1")


async def test_another_error_stays_the_drivers_own(enqueue_url):
    with pytest.raises(asyncpg.DivisionByZeroError):
        async with ASYNC["asyncpg"](enqueue_url) as connection:
            await join(connection).fetch("select 1 / $1::int", 0)


def test_another_error_stays_the_drivers_own_also_in_its_wrapper(enqueue_url):
    with (
        pytest.raises(sqlalchemy.exc.DataError, match="division by zero"),
        SYNC["sqlalchemy connection"](enqueue_url) as connection,
    ):
        join(connection).fetch_sync("select 1 / $1::int", 0)


async def test_asyncpg_without_a_transaction_is_refused(sql):
    with pytest.raises(NoTransaction):
        join(sql)


async def test_a_transaction_that_has_ended_since_is_noticed(sql):
    async with sql.transaction():
        joined = join(sql)

    with pytest.raises(NoTransaction):
        await joined.fetch("select 1")


def test_psycopg_in_autocommit_is_refused(enqueue_url):
    connection = psycopg.connect(enqueue_url, autocommit=True)
    with connection, pytest.raises(NoTransaction):
        join(connection)


def test_sqlalchemy_in_autocommit_is_refused(enqueue_url):
    url = enqueue_url.replace("postgresql:", "postgresql+psycopg:")
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(NoTransaction, match="AUTOCOMMIT"):
        join(connection).fetch_sync("select 1")
    engine.dispose()


def test_django_outside_of_atomic_is_refused(enqueue_url):
    from django.db import connection

    configure_django(enqueue_url)
    with pytest.raises(NoTransaction, match="atomic"):
        join(connection)
    connection.close()


def test_another_database_than_postgresql_is_refused():
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(UnknownConnection, match="PostgreSQL"):
        join(connection).fetch_sync("select 1")
    engine.dispose()


def test_what_is_no_connection_is_refused_and_named():
    engine = sqlalchemy.create_engine("sqlite://")

    with pytest.raises(UnknownConnection, match=r"sqlalchemy\.engine\.base\.Engine.*asyncpg"):
        join(engine)
    with pytest.raises(UnknownConnection, match=r"builtins\.NoneType"):
        join(None)


async def test_the_wrong_kind_of_call_is_refused(enqueue_url):
    async with ASYNC["asyncpg"](enqueue_url) as connection:
        with pytest.raises(WrongCall, match="await"):
            join(connection).fetch_sync("select 1")
    with (
        SYNC["psycopg"](enqueue_url) as connection,
        pytest.raises(WrongCall, match="synchronous call"),
    ):
        await join(connection).fetch("select 1")


def test_placeholders_may_repeat_and_percent_signs_survive():
    assert with_named_placeholders("select $1, $2 % $1, $10") == (
        "select %(p1)s, %(p2)s %% %(p1)s, %(p10)s"
    )
    assert name_arguments(["a", 1]) == {"p1": "a", "p2": 1}


def test_no_driver_is_imported_for_nothing():
    drivers = "{'psycopg', 'sqlalchemy', 'django', 'numpy', 'xxhash'}"
    check = f"import sys, skep.enqueue; print({drivers} & sys.modules.keys())"

    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout == "set()\n"
