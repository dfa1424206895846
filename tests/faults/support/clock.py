"""The clock of a database, to be moved by a test: everything in it that asks for the time obeys."""

MOVABLE = """
create table public.clock (ahead interval not null);
insert into public.clock values ('0');
create or replace function skep.now() returns timestamptz language sql volatile parallel safe as
  'select clock_timestamp() + (select ahead from public.clock)';
"""


class Clock:
    """Moves the time of one database."""

    def __init__(self, sql):
        self._sql = sql

    async def move(self, seconds):
        """Let so much time pass, or come back, for everybody who asks from now on."""
        await self._sql.execute(
            "update public.clock set ahead = ahead + $1 * interval '1 second'", seconds
        )


async def make_movable(sql):
    """Put the database of this connection under a clock that can be moved."""
    await sql.execute(MOVABLE)
    return Clock(sql)
