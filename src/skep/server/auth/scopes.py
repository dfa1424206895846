"""Decide whether a caller who is restricted to some queues may use those that a request is about.

A request names queues, or partitions, which belong to one. Grants are by the queue's name or by its
namespace. Names are decided at once; the queue of a partition and the namespace of a queue may have
to be looked up first. A partition that does not exist is nobody's, and is let pass to be answered
as such.
"""

from collections.abc import Collection
from typing import Final

from skep.broker.queues.ownership import Whereabouts, first_namespace
from skep.model.errors import Forbidden
from skep.server.auth.access import Level
from skep.server.auth.identity import Grants, Identity


class Scopes:
    """Knows what callers may use."""

    def __init__(self, whereabouts: Whereabouts) -> None:
        self._whereabouts: Final = whereabouts

    def allow_now(
        self,
        identity: Identity,
        level: Level,
        *,
        queues: Collection[str] = (),
        partitions: Collection[int] = (),
    ) -> bool:
        """Decide without asking anybody; False if that is not possible.

        Raises:
            Forbidden: Something is not granted.
        """
        grants = identity.grants
        if grants is None:
            return True
        found = [self._whereabouts.known_queue(each) for each in partitions]
        named = [queue for queue in (*queues, *found) if queue is not None]
        doubtful = [queue for queue in named if grants.level_of_name(queue) < level]
        if doubtful and not grants.knows_namespaces:
            raise _forbidden(level, doubtful[0], queues)
        for queue in doubtful:
            namespace = self._whereabouts.known_namespace(queue)
            if namespace is None:
                return False
            if grants.level_of_namespace(namespace) < level:
                raise _forbidden(level, queue, queues)
        return None not in found

    async def require(
        self,
        identity: Identity,
        level: Level,
        *,
        queues: Collection[str] = (),
        partitions: Collection[int] = (),
    ) -> None:
        """Let pass whoever may use all of these.

        Raises:
            Forbidden: Something is not granted.
            Unavailable: It cannot be looked up now.
        """
        grants = identity.grants
        if grants is None:
            return
        found = await self._whereabouts.queues_of(partitions)
        named = {*queues, *found.values()}
        granted = await self._granted(grants, level, named)
        for queue in named - granted:
            raise _forbidden(level, queue, queues)

    async def permitted(
        self, identity: Identity, level: Level, queues: Collection[str]
    ) -> Collection[str]:
        """Return those of the queues that a caller may use.

        Raises:
            Unavailable: It cannot be looked up now.
        """
        grants = identity.grants
        return queues if grants is None else await self._granted(grants, level, queues)

    def require_namespace(self, identity: Identity, level: Level, namespace: str) -> None:
        """Let pass whoever may use every queue of a namespace.

        Raises:
            Forbidden: It is not granted.
        """
        grants = identity.grants
        if grants is not None and grants.level_of_namespace(namespace) < level:
            raise Forbidden(
                f"Insufficient permissions: no {level.word} grant on the namespace {namespace!r}"
            )

    async def exists(self, identity: Identity, queue: str) -> bool:
        """Say whether there is such a queue, to a restricted caller; to others it is all one.

        Raises:
            Unavailable: It cannot be looked up now.
        """
        if identity.grants is None:
            return True
        return queue in await self._whereabouts.namespaces_of({queue})

    async def _granted(self, grants: Grants, level: Level, queues: Collection[str]) -> set[str]:
        granted = {queue for queue in queues if grants.level_of_name(queue) >= level}
        others = set(queues) - granted
        if others and grants.knows_namespaces:
            namespaces = await self._whereabouts.namespaces_of(others)
            for queue in others:
                # What does not exist is decided by what it would become.
                namespace = namespaces.get(queue, first_namespace(queue))
                if grants.level_of_namespace(namespace) >= level:
                    granted.add(queue)
        return granted


def _forbidden(level: Level, queue: str, named: Collection[str]) -> Forbidden:
    # Whoever named a partition is not told which queue it belongs to.
    what = f"the queue {queue!r}" if queue in named else "the queue of this partition"
    return Forbidden(f"Insufficient permissions: no {level.word} grant on {what}")
