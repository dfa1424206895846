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
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from skep.broker.pop.accept import Deliver, Poll, PollOptions, Pop, empty_body
from skep.db.access.errors import GroupGone
from skep.db.access.slots import Caller
from skep.model.errors import Defect, SkepError, Unavailable
from skep.model.limits import DISCOVERED_QUEUES_MAX

_log = logging.getLogger(__name__)

DISCOVER_CALL: Final = "select * from skep.discover_queues($1, $2, $3)"

KNOWN_FOR_S: Final = 1.0
"""How long a list of queues is used."""

_ANSWERS_MAX: Final = 1_000


Permitted: TypeAlias = Callable[[Collection[str]], Awaitable[Collection[str]]]
"""Returns those of the queues found that a client may use."""


class Search:
    """One client's request for messages of any queue that fits."""

    __slots__ = (
        "_deliver",
        "_refuse",
        "deadline",
        "is_over",
        "namespace",
        "options",
        "permitted",
        "task",
    )

    def __init__(
        self,
        options: PollOptions,
        *,
        namespace: str,
        task: str,
        deadline: float,
        deliver: Deliver,
        refuse: Callable[[SkepError], None],
        permitted: Permitted | None = None,
    ) -> None:
        self.options: Final = options
        self.namespace: Final = namespace
        self.task: Final = task
        self.deadline: Final = deadline
        self.permitted: Final = permitted
        self.is_over = False
        self._deliver: Final = deliver
        self._refuse: Final = refuse

    def deliver(self, body: bytes | None) -> bool:
        """Answer; False when it was answered before or its client is gone."""
        if self.is_over:
            return False
        self.is_over = True
        return self._deliver(body)

    def refuse(self, error: SkepError) -> None:
        """Answer that it cannot be served."""
        if not self.is_over:
            self.is_over = True
            self._refuse(error)


class _QueuePoll(Poll):
    """The poll of a search on one queue. Its outcome says whether it answered the search."""

    __slots__ = ("outcome",)

    def __init__(self, search: Search, queue: str, *, deadline: float) -> None:
        self.outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def deliver(body: bytes | None) -> bool:
            is_sent = body is not None and search.deliver(body)
            self._settle(is_served=is_sent)
            return is_sent

        super().__init__(
            msgspec.structs.replace(search.options, queue=queue, is_discovered=True),
            deadline=deadline,
            deliver=deliver,
            refuse=self._fail,
        )

    def deliver(self, body: bytes | None) -> bool:
        """Answer the search; an empty answer is the search's own to give."""
        self.end()
        return self._deliver(body)

    def forget_outcome(self) -> None:
        """Keep asyncio from reporting an outcome that is not awaited any more."""
        if not self.outcome.cancel() and not self.outcome.cancelled():
            self.outcome.exception()

    def _settle(self, *, is_served: bool) -> None:
        if not self.outcome.done():
            self.outcome.set_result(is_served)

    def _fail(self, error: SkepError) -> None:
        if not self.outcome.done():
            self.outcome.set_exception(error)


class Discovery:
    """Accept polls that name a namespace or a task."""

    def __init__(self, caller: Caller, pop: Pop, *, now: Callable[[], float]) -> None:
        self._finder: Final = _QueueFinder(caller, now)
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
        task.add_done_callback(lambda _: self._tasks.pop(search))

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
            search.deliver(None)
            task.cancel()

    async def _serve(self, search: Search) -> None:
        polls: dict[str, _QueuePoll] = {}
        try:
            if not await self._try_in_turn(search, polls):
                await self._wait(search, polls)
            if not search.is_over:
                search.deliver(_nothing_body(polls.values()))
        except SkepError as error:
            search.refuse(error)
        except Exception as bug:  # noqa: BLE001 -- the client must get an answer
            _log.exception("a search failed by a defect")
            search.refuse(Defect(str(bug)))
        finally:
            for poll in polls.values():
                self._pop.abort(poll)
                poll.forget_outcome()

    async def _try_in_turn(self, search: Search, polls: dict[str, _QueuePoll]) -> bool:
        """Try one queue after the other; return whether one answered the search."""
        self._turn += 1
        queues = await self._find(search)
        for queue in in_turn(queues, self._turn - 1):
            poll = polls[queue] = _QueuePoll(search, queue, deadline=self._now())
            self._pop.pop_messages(poll)
            try:
                if await poll.outcome or search.is_over:
                    return True
            except GroupGone:
                self._finder.expire(search.namespace, search.task)
        return False

    async def _find(self, search: Search) -> Sequence[tuple[str, int]]:
        """Return the queues that fit and that the client may use."""
        found = await self._finder.find(search.namespace, search.task)
        if search.permitted is None:
            return found
        permitted = await search.permitted([name for name, _ in found])
        return [(name, priority) for name, priority in found if name in permitted]

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
                    polls[queue] = _QueuePoll(search, queue, deadline=search.deadline)
                    self._pop.pop_messages(polls[queue])
            try:
                await _first_of(polls.values(), timeout_s=min(left_s, KNOWN_FOR_S))
            except GroupGone:
                self._finder.expire(search.namespace, search.task)


async def _first_of(polls: Iterable[_QueuePoll], *, timeout_s: float) -> None:
    """Return when one of the polls was served or failed, or after a while.

    Raises:
        GroupGone: The queue of one was deleted, or the group on it.
        SkepError: What a poll failed with.
    """
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


class _QueueFinder:
    """Lists queues, at most a second old."""

    def __init__(self, caller: Caller, now: Callable[[], float]) -> None:
        self._caller: Final = caller
        self._now: Final = now
        self._answers: Final[dict[tuple[str, str], tuple[float, Sequence[tuple[str, int]]]]] = {}

    def expire(self, namespace: str, task: str) -> None:
        """Read the list again next time: a queue was deleted. Until then the old one stands."""
        _, queues = self._answers.get((namespace, task), (0.0, ()))
        self._answers[namespace, task] = (float("-inf"), queues)

    async def find(self, namespace: str, task: str) -> Sequence[tuple[str, int]]:
        """Return names and priorities, by falling priority.

        While the database is away the last list stands, so that waiting clients do not notice.

        Raises:
            Unavailable: It is away, and there is no list yet.
        """
        key = (namespace, task)
        asked_at, queues = self._answers.get(key, (float("-inf"), ()))
        if asked_at + KNOWN_FOR_S > self._now():
            return queues
        try:
            rows = await self._caller.call(DISCOVER_CALL, namespace, task, DISCOVERED_QUEUES_MAX)
        except Unavailable:
            if key not in self._answers:
                raise
            return queues
        queues = [(row[0], row[1]) for row in rows]
        if len(self._answers) >= _ANSWERS_MAX:
            self._answers.clear()
        self._answers[key] = (self._now(), queues)
        return queues
