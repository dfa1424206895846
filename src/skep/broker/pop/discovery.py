"""Discovery: serve a poll that names no queue from those of a namespace or task.

The queues are tried by priority, equal ones in rotation so that none starves. If none has messages
and the client waits, the search parks an ordinary poll on each queue. The first that gets messages
wins; the claims of later ones are given back. The list of queues is read again about every second,
shared by all searches of the same kind, so that new queues are noticed; and at once when a queue
turns out to be deleted, because a poll that named no queue must not create it again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from skep.broker.pop.accept import RETRY_S, Deliver, Poll, PollOptions, Pop, empty_body
from skep.db.access.slots import Caller
from skep.model.errors import Defect, NotFound, SkepError, Unavailable
from skep.model.limits import DISCOVERED_QUEUES_MAX
from skep.telemetry.defects import error_of

_log = logging.getLogger(__name__)

DISCOVER_CALL: Final = "select * from skep.discover_queues($1, $2, $3)"

KNOWN_FOR_S: Final = 1.0
"""How long a list of queues is used."""

_ANSWERS_MAX: Final = 1_000


Permitted: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of the queues found that a client may use."""


@dataclass(slots=True, eq=False)
class Search:
    """One client's request for messages of any queue that fits."""

    options: PollOptions
    namespace: str
    task: str
    deadline: float
    answer: Deliver
    refuse: Callable[[SkepError], None]
    permitted: Permitted | None = None
    waits: bool = False
    """Its client waits until the deadline, and is told then that there is nothing."""
    is_over: bool = False
    abort: Callable[[], object] | None = None
    """Stops what is done for it."""

    def deliver(self, body: bytes | None) -> bool:
        """Answer; False when it was answered before or its client is gone."""
        if self.is_over:
            return False
        self.is_over = True
        return self.answer(body)

    def run_out(self) -> None:
        """Answer it although it is still trying: its time is over."""
        self.fail(Unavailable())
        if self.abort is not None:
            self.abort()

    def fail(self, error: SkepError) -> None:
        """Answer that it cannot be served; one that waits is told that there is nothing."""
        if self.waits and isinstance(error, Unavailable):
            self.deliver(None)
        if not self.is_over:
            self.is_over = True
            self.refuse(error)


@dataclass(slots=True, eq=False, kw_only=True)
class _QueuePoll(Poll):
    """The poll of a search on one queue. Its outcome says whether it answered the search."""

    outcome: asyncio.Future[bool]

    @classmethod
    def begin(cls, search: Search, queue: str, *, deadline: float) -> "_QueuePoll":
        """Return a poll of this queue whose messages answer the search."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def refuse(error: SkepError) -> None:
            if not outcome.done():
                outcome.set_exception(error)

        options = msgspec.structs.replace(
            search.options, queue=queue, is_discovered=True, creates=False
        )
        return cls(options, deadline, search.deliver, refuse, outcome=outcome)

    def deliver(self, body: bytes | None) -> bool:
        """Answer the search; an empty answer is the search's own to give."""
        self.end()
        is_sent = body is not None and self.answer(body)
        if not self.outcome.done():
            self.outcome.set_result(is_sent)
        return is_sent

    def forget_outcome(self) -> None:
        """Keep asyncio from reporting an outcome that is not awaited any more."""
        if not self.outcome.cancel() and not self.outcome.cancelled():
            self.outcome.exception()


class Discovery:
    """Accept polls that name a namespace or a task."""

    def __init__(self, caller: Caller, pop: Pop, *, now: Callable[[], float]) -> None:
        self._caller: Final = caller
        self._answers: Final[dict[tuple[str, str], tuple[float, Sequence[tuple[str, int]]]]] = {}
        self._pop: Final = pop
        self._now: Final = now
        self._tasks: Final[dict[Search, asyncio.Task[None]]] = {}
        self._turn = 0
        self._is_stopped = False

    def __len__(self) -> int:
        """Count the searches under way."""
        return len(self._tasks)

    def pop_discovered(self, search: Search) -> None:
        """Serve a search; its answer is called once, unless it is aborted first."""
        task = asyncio.get_running_loop().create_task(self._serve(search))
        self._tasks[search] = task
        search.abort = task.cancel
        task.add_done_callback(lambda _: self._end(search))

    def _end(self, search: Search) -> None:
        del self._tasks[search]
        self._pop.deadlines.end(search)

    def abort(self, search: Search) -> None:
        """The client of a search is gone: stop working for it."""
        search.is_over = True
        task = self._tasks.get(search)
        if task is not None:
            task.cancel()

    def stop(self) -> None:
        """Answer every search that there is nothing, and let no more wait."""
        self._is_stopped = True
        for search, task in tuple(self._tasks.items()):
            error_of(partial(search.deliver, None))
            task.cancel()

    async def _serve(self, search: Search) -> None:
        polls: dict[str, _QueuePoll] = {}
        try:
            await self._serve_in_time(search, polls)
            if not search.is_over:
                search.deliver(_nothing_body(polls.values()))
        except SkepError as error:
            search.fail(error)
        except Exception as bug:  # noqa: BLE001 -- the client must get an answer
            _log.exception("a search failed by a defect")
            search.fail(Defect(str(bug)))
        finally:
            self._end_polls(polls)

    async def _serve_in_time(self, search: Search, polls: dict[str, _QueuePoll]) -> None:
        """Serve a search; while the database is away, one that waits tries again."""
        while True:
            try:
                if not await self._try_in_turn(search, polls):
                    await self._wait(search, polls)
            except Unavailable:
                left_s = search.deadline - self._now()
                if not search.waits or left_s <= 0 or self._is_stopped:
                    raise
                self._end_polls(polls)
                await asyncio.sleep(min(RETRY_S, left_s))
            else:
                return

    def _end_polls(self, polls: dict[str, _QueuePoll]) -> None:
        for poll in polls.values():
            self._pop.abort(poll)
            poll.forget_outcome()
        polls.clear()

    async def _try_in_turn(self, search: Search, polls: dict[str, _QueuePoll]) -> bool:
        """Try one queue after the other; return whether one answered the search."""
        self._turn += 1
        queues = await self._find(search)
        for queue in in_turn(queues, self._turn - 1):
            poll = polls[queue] = _QueuePoll.begin(search, queue, deadline=self._now())
            self._pop.pop(poll, waits=search.waits)
            try:
                if await poll.outcome or search.is_over:
                    return True
            except NotFound:
                self._expire(search)
        return False

    async def _find(self, search: Search) -> Sequence[tuple[str, int]]:
        """Return the queues that fit and that the client may use."""
        self._pop.deadlines.begin(search)
        found = await self._list_queues(search)
        if search.permitted is not None:
            permitted = await search.permitted([name for name, _ in found])
            found = [(name, priority) for name, priority in found if name in permitted]
        # One that does not wait takes its time for many queues: their polls end one by one.
        self._pop.deadlines.begin(search, has_own_end=not search.waits)
        return found

    async def _wait(self, search: Search, polls: dict[str, _QueuePoll]) -> None:
        """Park a poll on every queue, also on those that appear meanwhile."""
        while not search.is_over and not self._is_stopped:
            left_s = search.deadline - self._now()
            if left_s <= 0:
                return
            for queue, _ in await self._find(search):
                before = polls.get(queue)
                if before is None or before.is_settled:
                    if before is not None:
                        before.forget_outcome()
                    polls[queue] = _QueuePoll.begin(search, queue, deadline=search.deadline)
                    self._pop.pop(polls[queue], waits=search.waits)
            try:
                await _first_of(polls.values(), timeout_s=min(left_s, KNOWN_FOR_S))
            except NotFound:
                self._expire(search)

    def _expire(self, search: Search) -> None:
        """Read the list again next time: a queue was deleted. Until then the old one stands."""
        _, queues = self._answers.get((search.namespace, search.task), (0.0, ()))
        self._answers[search.namespace, search.task] = (float("-inf"), queues)

    async def _list_queues(self, search: Search) -> Sequence[tuple[str, int]]:
        """Return names and priorities, by falling priority.

        While the database is away the last list stands, so that waiting clients do not notice.
        """
        key = (search.namespace, search.task)
        asked_at, queues = self._answers.get(key, (float("-inf"), ()))
        if asked_at + KNOWN_FOR_S > self._now():
            return queues
        try:
            rows = await self._caller.call(DISCOVER_CALL, *key, DISCOVERED_QUEUES_MAX)
        except Unavailable:
            if key not in self._answers:
                raise
            return queues
        queues = [(row[0], row[1]) for row in rows]
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        self._answers[key] = (self._now(), queues)
        return queues


async def _first_of(polls: Iterable[_QueuePoll], *, timeout_s: float) -> None:
    """Return when one of the polls was served or failed, or after a while."""
    outcomes = [poll.outcome for poll in polls if not poll.outcome.done()]
    if not outcomes:
        await asyncio.sleep(timeout_s)
        return
    done, _ = await asyncio.wait(outcomes, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    for outcome in done:
        outcome.result()


def in_turn(queues: Sequence[tuple[str, int]], turn: int) -> list[str]:
    """Order queues, given by falling priority; equal ones start with another one each turn."""
    ordered: list[str] = []
    for _, equals in groupby(queues, key=lambda queue: queue[1]):
        names = [name for name, _ in equals]
        start = turn % len(names)
        ordered += names[start:] + names[:start]
    return ordered


def _nothing_body(polls: Iterable[_QueuePoll]) -> bytes | None:
    """Render an answer without messages as any of the queues would."""
    for poll in polls:
        if poll.group is not None:
            return empty_body(poll.group, poll.options)
    return None
