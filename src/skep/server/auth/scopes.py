"""Decide whether a restricted caller may use the queues and partitions of a request.

Grants are by the queue's name or namespace. Names are decided at once; the queue of a partition and
the namespace of a queue may have to be looked up. Unknown partitions pass: the route answers them.
"""

from collections.abc import Collection
from typing import Final

from skep.broker.queues.ownership import Ownership, first_namespace
from skep.model.errors import Forbidden
from skep.server.auth.access import Level
from skep.server.auth.identity import Grants, Identity


class Scopes:
    """Checks grants."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership: Final = ownership

    def allow_now(
        self,
        identity: Identity,
        level: Level,
        *,
        queues: Collection[str] = (),
        partitions: Collection[int] = (),
    ) -> bool:
        """Decide from what is cached, by `Forbidden` or True; False if that is not possible."""
        grants = identity.grants
        if grants is None:
            return True
        found = [self._ownership.known_queue(each) for each in partitions]
        named = [queue for queue in (*queues, *found) if queue is not None]
        doubtful = [queue for queue in named if grants.level_of_name(queue) < level]
        if doubtful and not grants.knows_namespaces:
            raise _forbidden(level, doubtful[0], queues)
        for queue in doubtful:
            namespace = self._ownership.known_namespace(queue)
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
        """Raise `Forbidden` unless the caller may use all of these."""
        grants = identity.grants
        if grants is None:
            return
        found = await self._ownership.queues_of(partitions)
        named = {*queues, *found.values()}
        granted = await self._granted(grants, level, named)
        for queue in named - granted:
            raise _forbidden(level, queue, queues)

    async def permitted(
        self, identity: Identity, level: Level, queues: Collection[str]
    ) -> Collection[str]:
        """Return the queues that the caller may use."""
        grants = identity.grants
        return queues if grants is None else await self._granted(grants, level, queues)

    def require_namespace(self, identity: Identity, level: Level, namespace: str) -> None:
        """Raise `Forbidden` unless the caller may use every queue of a namespace."""
        grants = identity.grants
        if grants is not None and grants.level_of_namespace(namespace) < level:
            raise Forbidden(
                f"Insufficient permissions: no {level.word} grant on the namespace {namespace!r}"
            )

    async def exists(self, identity: Identity, queue: str) -> bool:
        """Return whether a queue exists; always true for unrestricted callers."""
        if identity.grants is None:
            return True
        return queue in await self._ownership.namespaces_of({queue})

    async def _granted(self, grants: Grants, level: Level, queues: Collection[str]) -> set[str]:
        granted = {queue for queue in queues if grants.level_of_name(queue) >= level}
        others = set(queues) - granted
        if others and grants.knows_namespaces:
            namespaces = await self._ownership.namespaces_of(others)
            for queue in others:
                # For a queue that does not exist, the namespace it would get decides.
                namespace = namespaces.get(queue, first_namespace(queue))
                if grants.level_of_namespace(namespace) >= level:
                    granted.add(queue)
        return granted


def _forbidden(level: Level, queue: str, named: Collection[str]) -> Forbidden:
    # A caller that named a partition does not learn its queue.
    what = f"the queue {queue!r}" if queue in named else "the queue of this partition"
    return Forbidden(f"Insufficient permissions: no {level.word} grant on {what}")
