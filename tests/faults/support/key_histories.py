"""What clients saw of keys, and what of it could not have been.

A client reads a key and puts a value of its own under the condition that the version is still the
one it read, or adds to a counter. Versions order the writes of a key. A history is linearizable if
the order of versions agrees with what was written on top of what, and with real time.
"""

import asyncio
import json
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Any, NamedTuple


class Write(NamedTuple):
    """A put that was applied, or an increment; without a version it is unknown whether it was."""

    key: str
    value: Any
    expected: int
    version: int | None
    sent_at: float
    answered_at: float


class Read(NamedTuple):
    key: str
    value: Any
    version: int
    sent_at: float
    answered_at: float


@dataclass
class KeyHistory:
    writes: list[Write] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)


def violations(history):
    """Return what no order of the operations explains."""
    keys = {each.key for each in (*history.writes, *history.reads)}
    return [found for key in sorted(keys) for found in _violations(key, history)]


def _violations(key, history):
    writes = [each for each in history.writes if each.key == key]
    applied = sorted((each for each in writes if each.version), key=lambda each: each.version)
    possible = {each.value for each in writes if each.version is None}
    reads = [each for each in history.reads if each.key == key]
    for one, next_ in pairwise(applied):
        if one.version == next_.version:
            yield f"{key}: two writes have version {one.version}"
        elif next_.expected < one.version:
            yield f"{key}: {next_.value!r} was written over {one.value!r} without having seen it"
    value_by_version = {each.version: each.value for each in applied}
    for read in reads:
        written = value_by_version.get(read.version)
        if written is None and read.version and read.value not in possible:
            yield f"{key}: {read.value!r} was read and never written"
        elif written not in (None, read.value):
            yield f"{key}: version {read.version} was read as {read.value!r}, not {written!r}"
    yield from _backwards(key, [*applied, *reads])


def _backwards(key, events):
    """Yield operations that began after another had ended, and saw or made an older version."""
    ended = sorted(events, key=lambda each: each.answered_at)
    newest, at = 0, 0
    for event in sorted(events, key=lambda each: each.sent_at):
        while ended[at].answered_at < event.sent_at:
            newest = max(newest, ended[at].version)
            at += 1
        if event.version < newest:
            yield f"{key}: version {event.version} followed {newest}"


class KeyLoad:
    """Clients that change a few keys on a fleet, whatever happens to it."""

    def __init__(self, fleet, namespace, seed, *, clients=6, keys=2):
        self.history = KeyHistory()
        self.counted = 0
        self.maybe_counted = 0
        self.counts = []
        self._fleet = fleet
        self._ns = namespace
        self._keys = [f"key-{number}" for number in range(keys)]
        self._randoms = [Random(f"{seed} {number}") for number in range(clients)]
        self._is_over = False
        self._now = asyncio.get_running_loop().time
        self._changed = asyncio.Event()

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for number, random in enumerate(self._randoms):
                group.create_task(self._client(number, random))

    def finish(self):
        self._is_over = True

    async def until_written(self, count):
        """Wait for so many writes that were answered."""
        while len(self.counts) < count:
            self._changed.clear()
            await self._changed.wait()

    async def _client(self, number, random):
        step = 0
        while not self._is_over:
            try:
                async with self._fleet.connect() as client:
                    while not self._is_over:
                        step += 1
                        await self._change(client, random.choice(self._keys), f"{number}.{step}")
                        await self._count(client)
            except (OSError, EOFError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.02)

    async def _ask(self, client, **operation):
        answer = await client.post("/api/v1/kv", {"operations": [{"ns": self._ns, **operation}]})
        return json.loads(answer.body)["results"][0] if answer.status == 200 else None

    async def _change(self, client, key, value):
        sent_at = self._now()
        found = await self._ask(client, op="get", key=key)
        if found is None:
            return
        version = found["version"] if found["found"] else 0
        if version:
            self.history.reads.append(Read(key, found["value"], version, sent_at, self._now()))
        sent_at, result = self._now(), None
        is_answered = False
        try:
            result = await self._ask(
                client, op="put", key=key, value=value, forever=True, expect=version
            )
            is_answered = result is not None
        finally:
            if not is_answered:
                unknown = Write(key, value, version, None, sent_at, float("inf"))
                self.history.writes.append(unknown)
        if result is not None and result["applied"]:
            written = Write(key, value, version, result["version"], sent_at, self._now())
            self.history.writes.append(written)

    async def _count(self, client):
        is_answered = False
        try:
            result = await self._ask(client, op="incr", key="count", delta=1, forever=True)
            if result is not None:
                is_answered = True
                self.counts.append(result["value"])
                self._changed.set()
        finally:
            if not is_answered:
                self.maybe_counted += 1
