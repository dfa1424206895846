"""What clients were told of their timers, and what of it the log contradicts.

A client schedules a timer, then leaves it alone, replaces it or cancels it. What became of an
operation may be unknown, because its answer was lost. The queue has no window, so that a timer
which fired twice is in the log twice.
"""

import asyncio
import json
from base64 import b64encode
from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from random import Random


@dataclass
class TimerStory:
    """The operations on one key, in their order: the transaction id and status of each."""

    steps: list[tuple[str, str | None]] = field(default_factory=list)
    """A status of None is unknown; that of a cancel has the empty transaction id."""


def violations(stories, fired):
    """Return what is wrong about the transaction ids that are in the log."""
    times = Counter(fired)
    scheduled = {txn for story in stories for txn, _ in story.steps if txn}
    for txn in sorted(times.keys() - scheduled):
        yield f"{txn} fired and was never scheduled"
    for txn in sorted(txn for txn, fires in times.items() if fires > 1):
        yield f"{txn} fired {times[txn]} times"
    for story in stories:
        yield from _violations(story.steps, times)


def _violations(steps, times):
    for at, (txn, status) in enumerate(steps):
        after = steps[at + 1 :]
        fires = times[txn] > 0
        if not txn or status is None:
            continue
        if not after and not fires:
            yield f"{txn} was scheduled and never fired"
        elif after:
            _, next_status = after[0]
            if next_status in ("cancelled", "rescheduled") and fires:
                yield f"{txn} fired although it was {next_status}"
            elif next_status in ("absent", "scheduled") and not fires:
                yield f"{txn} was gone when it was looked for, and never fired"


class TimerLoad:
    """Clients that schedule, replace and cancel timers on a fleet, whatever happens to it."""

    def __init__(self, fleet, queue, seed, *, clients=6):
        self.stories = []
        self.answered = 0
        self._fleet = fleet
        self._queue = queue
        self._randoms = [Random(f"{seed} {number}") for number in range(clients)]
        self._names = count()
        self._is_over = False
        self._changed = asyncio.Event()

    async def run(self):
        async with asyncio.TaskGroup() as group:
            for random in self._randoms:
                group.create_task(self._client(random))

    def finish(self):
        self._is_over = True

    async def until_answered(self, operations):
        """Wait until so many operations were answered."""
        while self.answered < operations:
            self._changed.clear()
            await self._changed.wait()

    async def _client(self, random):
        while not self._is_over:
            try:
                async with self._fleet.connect() as client:
                    while not self._is_over:
                        await self._tell(client, random)
            except (OSError, EOFError, asyncio.IncompleteReadError):
                await asyncio.sleep(0.02)

    async def _tell(self, client, random):
        """Play the story of one timer."""
        story = TimerStory()
        self.stories.append(story)
        key = f"key-{next(self._names)}"
        await self._schedule(client, story, key, random.choice([0, 5, 30]))
        match random.choice(["leave", "replace", "cancel"]):
            case "replace":
                await self._schedule(client, story, key, random.choice([0, 5, 30]))
            case "cancel":
                path = f"/api/v1/timers/{self._queue}/{key}"
                await self._ask(story, "", client.call("DELETE", path))

    async def _schedule(self, client, story, key, delay_ms):
        txn = f"{key}.{len(story.steps)}"
        operation = {"op": "schedule", "queue": self._queue, "timerKey": key, "txn": txn}
        members = {"payload": b64encode(b"1").decode(), "delayMs": delay_ms}
        await self._ask(story, txn, client.post("/api/v1/timers", [{**operation, **members}]))

    async def _ask(self, story, txn, call):
        place = len(story.steps)
        story.steps.append((txn, None))
        answer = await call
        if answer.status == 200:
            body = json.loads(answer.body)
            status = body["results"][0]["status"] if "results" in body else body["status"]
            story.steps[place] = (txn, status)
            self.answered += 1
            self._changed.set()
