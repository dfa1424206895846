"""Run tests in a schema of another name: `SKEP_TEST_SCHEMA=other pytest tests/sql`.

The databases of tests are then migrated into that schema, and their URLs name it. What the tests
themselves ask in SQL says `skep.` and is spelled here, for connections that they open by such a
URL. The program never opens one: it takes the name off and spells by itself, or fails.
"""

import asyncpg
import psycopg

from skep import enqueue
from skep.jobs.declare import queues
from skep.model.schema_name import Schema, split_schema


class SpellingConnection(asyncpg.Connection):
    """A connection of a test: its statements, channels and settings are those of the schema."""

    spelling = Schema()

    def _spelled(self, query):
        return self.spelling.spelled(query)

    async def fetch(self, query, *arguments, **options):
        return await super().fetch(self._spelled(query), *arguments, **options)

    async def fetchval(self, query, *arguments, **options):
        return await super().fetchval(self._spelled(query), *arguments, **options)

    async def fetchrow(self, query, *arguments, **options):
        return await super().fetchrow(self._spelled(query), *arguments, **options)

    async def execute(self, query, *arguments, **options):
        return await super().execute(self._spelled(query), *arguments, **options)

    async def executemany(self, query, *arguments, **options):
        return await super().executemany(self._spelled(query), *arguments, **options)

    async def prepare(self, query, **options):
        return await super().prepare(self._spelled(query), **options)

    def cursor(self, query, *arguments, **options):
        return super().cursor(self._spelled(query), *arguments, **options)

    async def copy_records_to_table(self, table, *, schema_name=None, **options):
        name = self.spelling.name if schema_name == "skep" else schema_name
        return await super().copy_records_to_table(table, schema_name=name, **options)

    async def add_listener(self, channel, callback):
        await super().add_listener(self.spelling.called(channel), callback)


async def connect_to(url):
    """Open a connection of a test to an installation; the URL names its schema."""
    plain, schema = split_schema(url)
    return await asyncpg.connect(plain, connection_class=_class_of(schema))


def _class_of(schema):
    return type("ChosenConnection", (SpellingConnection,), {"spelling": schema})


def use_schema(patch, name):
    """Let tests talk to installations in the schema of that name."""
    chosen = Schema(name)

    def translated(function, **more):
        def call(*arguments, **options):
            plain, schema = split_schema(arguments[0] if arguments else "")
            if schema.is_default:
                return function(*arguments, **options)
            if "server_settings" in options:
                settings = options["server_settings"].items()
                options["server_settings"] = {chosen.spelled(key): said for key, said in settings}
            return function(plain, *arguments[1:], **options, **more)

        return call

    for name in ("connect", "create_pool"):
        patch.setattr(
            asyncpg, name, translated(getattr(asyncpg, name), connection_class=_class_of(chosen))
        )
    patch.setattr(psycopg, "connect", translated(psycopg.connect))
    patch.setattr(psycopg.AsyncConnection, "connect", translated(psycopg.AsyncConnection.connect))
    # Applications name the schema at each call; tests of calls are written for the default.
    for module in (enqueue, queues):
        patch.setattr(module, "schema_named", lambda _: chosen)
