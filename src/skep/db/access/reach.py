"""Whether the database answers this process.

A database that is away has cut or refused every connection. One that is silent has not: packets get
lost on the way, and only the timeout of a statement ends what waits for an answer. Callers whose
clients wait less long ask here instead.

While calls are under way and nothing was answered for a moment, whatever the pool, `Reach` sends a
question of its own. So one slow statement is not taken for silence.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from skep.db.access.slots import Slots
from skep.model.errors import SkepError

LOOK_S: Final = 0.25
"""How often to look whether calls are answered."""

SILENT_LOOKS: Final = 5
"""A database that answered nothing between so many looks, at least a second, is silent. Looks and
not seconds, because a process that does not run does not read answers either."""

_QUESTION: Final = "select 1"


class Reach:
    """Whether the database answers, as far as the pools of one process can tell."""

    def __init__(self, pools: Sequence[Slots], asking: Slots) -> None:
        """Take all pools, and the one that the question goes through."""
        self.is_silent = False
        """Calls are under way, and none of them has been answered for a while."""
        self._pools: Final = pools
        self._asking: Final = asking
        self._loop: Final = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._question: asyncio.Task[None] | None = None
        self._answer_count = 0
        self._unanswered_looks = 0

    def start(self) -> None:
        """Begin to look."""
        self._timer = self._loop.call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._question is not None:
            self._question.cancel()

    def is_away(self, *pools: Slots) -> bool:
        """Tell whether calls of these pools are not answered at present."""
        return self.is_silent or not all(pool.connected_count for pool in pools)

    def _look(self) -> None:
        answer_count = sum(pool.answer_count for pool in self._pools)
        is_asking = any(pool.busy_count for pool in self._pools)
        if answer_count != self._answer_count or not is_asking:
            self._answer_count = answer_count
            self._unanswered_looks = 0
        else:
            self._unanswered_looks += 1
            if self._question is None:
                self._question = self._loop.create_task(self._ask())
        self.is_silent = self._unanswered_looks >= SILENT_LOOKS
        self._timer = self._loop.call_later(LOOK_S, self._look)

    async def _ask(self) -> None:
        try:
            await self._asking.call(_QUESTION)
        except SkepError:
            pass  # the pool takes care of its connections
        finally:
            self._question = None
