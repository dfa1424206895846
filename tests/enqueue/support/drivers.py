"""The connections of applications, each with a transaction open, as context managers.

A block that ends well commits; one that raises rolls back.
"""

from contextlib import asynccontextmanager, contextmanager
from urllib.parse import unquote, urlsplit

import asyncpg
import psycopg
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from skep.model.schema_name import split_schema


@asynccontextmanager
async def asyncpg_connection(url):
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close(timeout=5)


@asynccontextmanager
async def asyncpg_pool(url):
    async with (
        asyncpg.create_pool(url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_async(url):
    async with await psycopg.AsyncConnection.connect(url, row_factory=dict_row) as connection:
        yield connection


@asynccontextmanager
async def psycopg_async_in_autocommit(url):
    """A block of a transaction on a connection that else commits by itself."""
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        connection.transaction(),
    ):
        yield connection


def _sqlalchemy_async(dialect, open_transaction):
    @asynccontextmanager
    async def opened(url):
        engine = create_async_engine(_with_dialect(url, dialect))
        try:
            async with open_transaction(engine) as transaction:
                yield transaction
        finally:
            await engine.dispose()

    return opened


@asynccontextmanager
async def _async_session(engine):
    async with AsyncSession(engine) as session, session.begin():
        yield session


@contextmanager
def psycopg_sync(url):
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection


def _sqlalchemy(dialect, open_transaction):
    @contextmanager
    def opened(url):
        engine = sqlalchemy.create_engine(_with_dialect(url, dialect))
        try:
            with open_transaction(engine) as transaction:
                yield transaction
        finally:
            engine.dispose()

    return opened


@contextmanager
def _session(engine):
    with Session(engine) as session, session.begin():
        yield session


@contextmanager
def _scoped_session(engine):
    session = scoped_session(sessionmaker(engine))
    try:
        with session.begin():
            yield session
    finally:
        session.remove()


@contextmanager
def django_connection(url):
    from django.db import connection, transaction

    configure_django(url)
    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


def configure_django(url):
    """Let Django's default connection lead to a database."""
    import django
    from django.conf import settings
    from django.db import connection

    if not settings.configured:
        engine = "django.db.backends.postgresql"
        settings.configure(DATABASES={"default": {"ENGINE": engine, "NAME": "see below"}})
        django.setup()
    parts = urlsplit(url)
    connection.close()
    connection.settings_dict.update(
        NAME=parts.path[1:],
        USER=unquote(parts.username or ""),
        PASSWORD=unquote(parts.password or ""),
        HOST=parts.hostname,
        PORT=parts.port,
    )


def _with_dialect(url, dialect):
    plain, _ = split_schema(url)
    return urlsplit(plain)._replace(scheme=f"postgresql+{dialect}").geturl()


ASYNC = {
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "psycopg": psycopg_async,
    "psycopg in autocommit": psycopg_async_in_autocommit,
    "sqlalchemy connection": _sqlalchemy_async("asyncpg", lambda engine: engine.begin()),
    "sqlalchemy connection on psycopg": _sqlalchemy_async("psycopg", lambda engine: engine.begin()),
    "sqlalchemy session": _sqlalchemy_async("asyncpg", _async_session),
}
SYNC = {
    "psycopg": psycopg_sync,
    "sqlalchemy connection": _sqlalchemy("psycopg", lambda engine: engine.begin()),
    "sqlalchemy session": _sqlalchemy("psycopg", _session),
    "sqlalchemy scoped session": _sqlalchemy("psycopg", _scoped_session),
    "django": django_connection,
}
