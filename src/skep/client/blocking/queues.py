# Generated from skep/client/aio/queues.py by tools/generate_blocking_client.py; edit that.
"""Queues and their partitions: list, configure, pause, clear, delete."""

from typing import Any, Final

import msgspec

from skep.client.addresses import path_of
from skep.client.blocking.session import Session
from skep.client.items import encode
from skep.client.values import Configured, Json, PartitionPage, QueuePage

_decode_page: Final = msgspec.json.Decoder(QueuePage).decode
_decode_partitions: Final = msgspec.json.Decoder(PartitionPage).decode
_decode_configured: Final = msgspec.json.Decoder(Configured).decode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Queues:
    """The queues of a broker."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    def find(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        search: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> QueuePage:
        """Return a page of queues."""
        path = path_of(
            "resources/queues",
            namespace=namespace,
            task=task,
            search=search,
            limit=limit,
            offset=offset,
        )
        return _decode_page((self._session.request("GET", path)).body)

    def configure(
        self,
        queue: str,
        *,
        namespace: str | None = None,
        task: str | None = None,
        replace: bool = False,
        **options: Any,
    ) -> Configured:
        """Create a queue, or change what is given; None restores a default.

        The options have the names of the wire: `leaseTime=60, retryLimit=5`.

        Args:
            queue: Its name.
            namespace: None leaves it as it is.
            task: None leaves it as it is.
            replace: Restore the default of everything that is not given.
            **options: The options.
        """
        members: Json = {"queue": queue, "options": options}
        if namespace is not None:
            members["namespace"] = namespace
        if task is not None:
            members["task"] = task
        if replace:
            members["mode"] = "replace"
        answer = self._session.request("POST", path_of("configure"), encode(members))
        return _decode_configured(answer.body)

    def configuration(self, queue: str) -> Configured:
        """Return all options of a queue."""
        path = path_of("queues", queue, "config")
        return _decode_configured((self._session.request("GET", path)).body)

    def describe(self, queue: str, *, partition_limit: int = 100) -> Json:
        """Return everything about a queue: options, groups, partitions, counts."""
        path = path_of("resources/queues", queue, partitionLimit=partition_limit)
        return _decode((self._session.request("GET", path)).body)

    def partitions(
        self,
        queue: str | None = None,
        *,
        search: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> PartitionPage:
        """Return a page of partitions, of one queue or of all."""
        path = path_of("resources/partitions", queue=queue, search=search, after=after, limit=limit)
        return _decode_partitions((self._session.request("GET", path)).body)

    def depth(self, queue: str, *, group: str | None = None) -> Json:
        """Count what waits in a queue, by partition."""
        path = path_of("resources/queues", queue, "depth", group=group)
        return _decode((self._session.request("GET", path)).body)

    def pause(self, queue: str) -> None:
        """Deliver nothing of a queue until it is resumed."""
        self._session.request("POST", path_of("queues", queue, "pause"))

    def resume(self, queue: str) -> None:
        """Deliver a paused queue again."""
        self._session.request("POST", path_of("queues", queue, "resume"))

    def clear(self, queue: str, *, partition: str | None = None) -> Json:
        """Drop all messages of a queue, or of one of its partitions."""
        path = path_of("queues", queue, "clear", partition=partition)
        return _decode((self._session.request("DELETE", path)).body)

    def delete(self, queue: str) -> bool:
        """Delete a queue with its messages, groups and dead letters; return whether it existed."""
        path = path_of("resources/queues", queue)
        return bool(_decode((self._session.request("DELETE", path)).body).get("existed"))
