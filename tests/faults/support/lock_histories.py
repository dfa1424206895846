"""What holders of a lock did, and what of it two holders at once would have done.

A client acquires the lock, waiting in line, and writes its token to a key, in one call with the
guard of its permit; then it releases the lock. Versions order the writes of the key. A holder that
was replaced must not write, so tokens never fall in that order, and each has one owner.
"""

import asyncio
import json
from itertools import pairwise
from typing import NamedTuple


class Hold(NamedTuple):
    """A write of a holder."""

    token: int
    owner: str
    version: int
    """Of the key that it wrote."""


def violations(holds):
    """Return what could not have been if there was one holder at a time."""
    owners = {}
    for hold in holds:
        first = owners.setdefault(hold.token, hold.owner)
        if first != hold.owner:
            yield f"token {hold.token} was held by {first} and by {hold.owner}"
    for one, next_ in pairwise(sorted(holds, key=lambda hold: hold.version)):
        if next_.token < one.token:
            yield f"the holder of {next_.token} wrote after that of {one.token}"


class LockLoad:
    """Clients that take turns with a lock on a fleet, whatever happens to it."""

    def __init__(self, fleet, name, *, clients=5):
        self.holds = []
        self._fleet = fleet
        self._name = name
        self._clients = clients
        self._is_over = False
        self._changed = asyncio.Event()

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for number in range(self._clients):
                group.create_task(self._client(f"client-{number}"))

    def finish(self):
        self._is_over = True

    async def until_held(self, times):
        """Wait until holders have written so often."""
        while len(self.holds) < times:
            self._changed.clear()
            await self._changed.wait()

    async def _client(self, owner):
        while not self._is_over:
            try:
                async with self._fleet.connect() as client:
                    while not self._is_over:
                        await self._hold(client, owner)
            except (OSError, EOFError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.02)

    async def _ask(self, client, path, *operations):
        answer = await client.post(path, {"operations": operations})
        return json.loads(answer.body)["results"] if answer.status == 200 else None

    async def _hold(self, client, owner):
        lock = {"name": self._name, "owner": owner}
        asked = {"op": "acquire", "ttlSeconds": 2, "waitMs": 5_000, **lock}
        results = await self._ask(client, "/api/v1/locks", asked)
        if results is None or not results[0]["acquired"]:
            return
        permit = results[0]
        put = {"op": "put", "ns": self._name, "key": "k", "value": permit["token"]}
        written = await self._ask(client, "/api/v1/kv", permit["guard"], {**put, "forever": True})
        if written is not None and written[1]["applied"]:
            self.holds.append(Hold(permit["token"], owner, written[1]["version"]))
            self._changed.set()
        released = {"op": "release", "token": permit["token"], **lock}
        await self._ask(client, "/api/v1/locks", released)
