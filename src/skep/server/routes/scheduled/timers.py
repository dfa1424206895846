"""Timers: scheduled messages under a key of the client's own."""

from pathlib import Path
from typing import Annotated, Final

import msgspec

from skep.broker.timers.accept import Timers
from skep.broker.timers.answer import TimerAnswer, TimerResult, result, results
from skep.broker.timers.browse import TimerBrowser, TimerDetail, TimerMissing, TimerRows
from skep.broker.timers.operations import (
    TimerOperation,
    TimerStep,
    check_queue,
    check_target,
    read_query,
    read_steps,
)
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.hot.exchange import parse_query
from skep.server.routes.section import (
    AnyRequest,
    Body,
    Section,
    in_path,
    in_query,
    rest_of_path,
    routes_of,
)

_PATH: Final = "/api/v1/timers"
_QUEUE: Final = f"{_PATH}/{{queue:str}}"
_ONE: Final = f"{_QUEUE}/{{timer_key:path}}"

Queue = Annotated[str, in_path("Queue.")]
TimerKey = Annotated[Path, in_path("Key of the timer; its slashes may stay.")]


class TimerBody(msgspec.Struct):
    """A call on timers: one commit. It may also be the array of operations alone."""

    operations: list[TimerOperation]


@routes_of("Timers")
def timer_routes(section: Section, timers: Timers, browser: TimerBrowser) -> None:
    """Declare the routes of timers."""

    @section.post(
        _PATH,
        access.WRITE_BY_BODY,
        body=Body(TimerBody),
        responses={
            403: "A timer is more than 90 days ahead.",
            409: "A queue was deleted meanwhile, or cannot be encrypted for.",
        },
    )
    async def call_timers(request: AnyRequest) -> TimerAnswer:
        """Schedule, replace and cancel timers in one commit.

        A timer becomes a message of its queue when its time has come. Scheduling one whose key
        exists replaces it. `payload` is JSON, as base64; `txn` its transaction id.
        """
        steps = read_steps(await request.body())
        requester = requester_of(request)
        await requester.require(queues={step.queue for step in steps})
        states = await timers.carry_out(steps, requester.identity.subject)
        return results(steps, states)

    @section.get(_QUEUE, access.READ_QUEUE)
    async def list_timers(
        request: AnyRequest,
        queue: Queue,
        after: Annotated[str | None, in_query("`nextAfter` of the previous page.")] = None,
        limit: Annotated[str | None, in_query("From 1 to 1000; 100 unless given.")] = None,
        mode: Annotated[str | None, in_query("`count` to count by prefix instead.")] = None,
        prefix: Annotated[str | None, in_query("Count the keys that begin with it.")] = None,
    ) -> TimerRows:
        """List the timers of a queue, or count them."""
        del after, limit, mode, prefix  # read together, with the codes that clients know
        check_queue(queue)
        return await browser.list_timers(queue, read_query(parse_query(request.url.query.encode())))

    @section.get(_ONE, access.READ_QUEUE)
    async def peek_timer(
        request: AnyRequest, queue: Queue, timer_key: TimerKey
    ) -> TimerDetail | TimerMissing:
        """Show a timer, with its payload as base64.

        `found` is false where there is none.
        """
        del timer_key  # as Litestar cuts it; see `_key_of`
        return await browser.peek(queue, _key_of(request, queue))

    @section.delete(_ONE, access.WRITE_QUEUE)
    async def cancel_timer(
        request: AnyRequest,
        queue: Queue,
        timer_key: TimerKey,
        txn: Annotated[str | None, in_query("Repeated in the answer if there is no timer.")] = None,
    ) -> TimerResult:
        """Cancel a timer.

        The status `absent` means that it does not wait: it fired, was cancelled or never scheduled.
        """
        del timer_key
        step = TimerStep(queue, _key_of(request, queue), txn)
        (state,) = await timers.carry_out([step], None)
        return result(step, state)


def _key_of(request: AnyRequest, queue: str) -> str:
    """Return the key in a path, if it can be one."""
    key = rest_of_path(request, 5)
    check_target(queue, key)
    return key
