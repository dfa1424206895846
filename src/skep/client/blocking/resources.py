# Generated from skep/client/aio/resources.py by tools/generate_blocking_client.py; edit that.
"""What a broker has: queues, groups, messages, dead letters, traces, scheduled messages."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from skep.client.blocking.session import Session
from skep.client.endpoints import path_of, spell_time
from skep.client.pushes import encode
from skep.client.values import (
    Configured,
    DeadLetter,
    DeadLetterPage,
    FiledTrace,
    GroupEntry,
    GroupLag,
    Json,
    MessagePage,
    PartitionPage,
    QueuePage,
    Redrive,
    ScheduledMessage,
    SeekPreview,
    Trace,
)
from skep.model.errors import BadRequest

SeekTarget: TypeAlias = Literal["start", "end"] | datetime | int
"""One end of the log, a time, or in one partition the offset to deliver next."""

T = TypeVar("T")


class _Resource:
    """Requests about one kind of thing: their paths, bodies and answers."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    def _ask(
        self, kind: type[T], method: str, *segments: str, members: object = None, **query: object
    ) -> T:
        """Send a request and return its answer as a value of this kind."""
        body = None if members is None else encode(members)
        answer = self._session.request(method, path_of(*segments, **query), body)
        return msgspec.json.decode(answer.body, type=kind)

    def _tell(self, method: str, *segments: str) -> None:
        """Send a request whose answer says nothing."""
        self._session.request(method, path_of(*segments))


class Queues(_Resource):
    """The queues of a broker."""

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
        return self._ask(
            QueuePage,
            "GET",
            "resources/queues",
            namespace=namespace,
            task=task,
            search=search,
            limit=limit,
            offset=offset,
        )

    def configure(
        self,
        queue: str,
        *,
        namespace: str | None = None,
        task: str | None = None,
        replace: bool = False,
        **options: Any,
    ) -> Configured:
        """Create a queue, or change the options given; None restores a default.

        The options have the names of the wire: `leaseTime=60, retryLimit=5`.

        Args:
            queue: Its name.
            namespace: None leaves it as it is.
            task: None leaves it as it is.
            replace: Restore the default of every option that is not given.
            **options: The options.
        """
        mode = "replace" if replace else None
        members = {"queue": queue, "options": options}
        members |= _given(namespace=namespace, task=task, mode=mode)
        return self._ask(Configured, "POST", "configure", members=members)

    def configuration(self, queue: str) -> Configured:
        """Return all options of a queue."""
        return self._ask(Configured, "GET", "queues", queue, "config")

    def describe(self, queue: str, *, partition_limit: int = 100) -> Json:
        """Return everything about a queue: options, groups, partitions, counts."""
        return self._ask(Json, "GET", "resources/queues", queue, partitionLimit=partition_limit)

    def partitions(
        self,
        queue: str | None = None,
        *,
        search: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> PartitionPage:
        """Return a page of partitions, of one queue or of all."""
        return self._ask(
            PartitionPage,
            "GET",
            "resources/partitions",
            queue=queue,
            search=search,
            after=after,
            limit=limit,
        )

    def depth(self, queue: str, *, group: str | None = None) -> Json:
        """Count the messages that wait in a queue, by partition."""
        return self._ask(Json, "GET", "resources/queues", queue, "depth", group=group)

    def pause(self, queue: str) -> None:
        """Deliver nothing of a queue until it is resumed."""
        self._tell("POST", "queues", queue, "pause")

    def resume(self, queue: str) -> None:
        """Deliver a paused queue again."""
        self._tell("POST", "queues", queue, "resume")

    def clear(self, queue: str, *, partition: str | None = None) -> Json:
        """Drop all messages of a queue, or of one of its partitions."""
        return self._ask(Json, "DELETE", "queues", queue, "clear", partition=partition)

    def delete(self, queue: str) -> bool:
        """Delete a queue with its messages, groups and dead letters; return whether it existed."""
        return bool((self._ask(Json, "DELETE", "resources/queues", queue)).get("existed"))


class Groups(_Resource):
    """The consumer groups of a broker."""

    def find(
        self, *, queue: str | None = None, limit: int = 1000, offset: int = 0
    ) -> list[GroupEntry]:
        """Return groups, one entry per group and queue."""
        return self._ask(
            list[GroupEntry], "GET", "consumer-groups", queue=queue, limit=limit, offset=offset
        )

    def lagging(self, *, min_lag_s: int = 3600, limit: int = 100) -> list[Json]:
        """Return the partitions whose first unread message is oldest."""
        return self._ask(
            list[Json], "GET", "consumer-groups/lagging", minLagSeconds=min_lag_s, limit=limit
        )

    def describe(self, group: str) -> Json:
        """Return the progress of a group in its partitions, by queue."""
        return self._ask(Json, "GET", "consumer-groups", group)

    def lag(self, group: str, queue: str, *, limit: int = 100, offset: int = 0) -> GroupLag:
        """Return how far a group is behind, in messages and seconds."""
        segments = _group_segments(group, queue)
        return self._ask(GroupLag, "GET", *segments, "lag", limit=limit, offset=offset)

    def seek(
        self,
        group: str,
        queue: str,
        to: SeekTarget,
        *,
        partition: str | None = None,
        create: bool = False,
    ) -> Json:
        """Move a group, in all partitions or in one. Messages it passes over are not delivered.

        Args:
            group: The group.
            queue: The queue.
            to: The start, the end, a time or an offset.
            partition: Only there.
            create: Subscribe the group if it does not exist.
        """
        if isinstance(to, int) and partition is None:
            raise BadRequest(f"cannot seek to offset {to} in all partitions: name a partition")
        if isinstance(to, str):
            members: Json = {"toStart": to == "start", "toEnd": to == "end"}
        elif isinstance(to, datetime):
            members = {"timestamp": spell_time(to)}
        else:
            members = {"offset": to}
        segments = (*_group_segments(group, queue, partition), "seek")
        return self._ask(Json, "POST", *segments, members={**members, "create": create})

    def preview_seek(
        self, group: str, queue: str, to: SeekTarget, *, partition: str | None = None
    ) -> SeekPreview:
        """Return how many messages a seek would skip and replay."""
        name = "to" if isinstance(to, str) else "offset" if isinstance(to, int) else "timestamp"
        segments = (*_group_segments(group, queue, partition), "seek", "preview")
        return self._ask(SeekPreview, "GET", *segments, **{name: to})

    def positions(self, group: str, queue: str, *, limit: int = 1000) -> dict[str, int]:
        """Return the last offset that is done, by partition."""
        segments = _group_segments(group, queue)
        return (self._ask(Json, "GET", *segments, "offsets", limit=limit))["offsets"]

    def set_positions(self, group: str, queue: str, offsets: dict[str, int]) -> Json:
        """Set the last offset that is done, by partition."""
        segments = (*_group_segments(group, queue), "offsets")
        return self._ask(Json, "PUT", *segments, members={"offsets": offsets})

    def pause(self, group: str, queue: str) -> None:
        """Deliver nothing more to a group."""
        self._tell("POST", *_group_segments(group, queue), "pause")

    def resume(self, group: str, queue: str) -> None:
        """Deliver to a group again."""
        self._tell("POST", *_group_segments(group, queue), "resume")

    def delete(self, group: str, queue: str | None = None) -> Json:
        """Forget the progress of a group, on one queue or on all."""
        segments = ("consumer-groups", group) if queue is None else _group_segments(group, queue)
        return self._ask(Json, "DELETE", *segments)


class Messages(_Resource):
    """Messages, one by one. A message goes by its transaction id or its message id."""

    def find(
        self,
        *,
        queue: str | None = None,
        partition: str | None = None,
        status: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        transaction_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> MessagePage:
        """Return a page of messages, the newest first; of the last hour if no time is given."""
        return self._ask(
            MessagePage,
            "GET",
            "messages",
            queue=queue,
            partition=partition,
            status=status,
            limit=limit,
            cursor=cursor,
            transactionId=transaction_id,
            **{"from": since, "to": until},
        )

    def peek(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        limit: int = 10,
    ) -> list[Json]:
        """Return what a group would get next, claiming nothing."""
        page = self._ask(
            Json,
            "GET",
            "messages/peek",
            queue=queue,
            partition=partition,
            consumerGroup=group,
            limit=limit,
        )
        return page["messages"]

    def show(self, partition_id: str, message: str) -> Json:
        """Return a message with its payload."""
        return self._ask(Json, "GET", "messages", partition_id, message)

    def delete(self, partition_id: str, message: str) -> Json:
        """Delete a message for all groups, with its dead letters."""
        return self._ask(Json, "DELETE", "messages", partition_id, message)

    def retry(self, partition_id: str, message: str, *, group: str | None = None) -> Json:
        """Deliver a message that failed again, now."""
        members = {"consumerGroup": group}
        return self._ask(Json, "POST", "messages", partition_id, message, "retry", members=members)

    def dead_letter(
        self, partition_id: str, message: str, *, group: str | None = None, error: str | None = None
    ) -> Json:
        """Move a message to the dead letters."""
        members = {"consumerGroup": group, "error": error}
        return self._ask(Json, "POST", "messages", partition_id, message, "dlq", members=members)


class DeadLetters(_Resource):
    """Messages that groups gave up on."""

    def find(
        self,
        *,
        queue: str | None = None,
        partition: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> DeadLetterPage:
        """Return a page of dead letters, the newest failure first."""
        return self._ask(
            DeadLetterPage,
            "GET",
            "dlq",
            queue=queue,
            partition=partition,
            consumerGroup=group,
            error=error,
            limit=limit,
            offset=offset,
            **{"from": since, "to": until},
        )

    def show(self, dlq_id: int) -> DeadLetter:
        """Return a dead letter."""
        return self._ask(DeadLetter, "GET", "dlq", str(dlq_id))

    def replay(
        self, dlq_id: int, *, queue: str | None = None, partition: str | None = None
    ) -> Json:
        """Push the message of a dead letter again: where it was, or to another queue."""
        members = _given(queue=queue, partition=partition)
        return self._ask(Json, "POST", "dlq", str(dlq_id), "replay", members=members)

    def delete(self, dlq_id: int) -> None:
        """Delete a dead letter; its message stays with other groups."""
        self._tell("DELETE", "dlq", str(dlq_id))

    def purge(self, *, queue: str, group: str | None = None) -> int:
        """Delete all dead letters of a queue, or of one of its groups; return how many."""
        answer = self._ask(Json, "DELETE", "dlq", queue=queue, consumerGroup=group)
        return int(answer["deleted"])

    def redrive(
        self,
        *,
        queue: str | None = None,
        partition: str | None = None,
        group: str | None = None,
        error: str | None = None,
        ids: Sequence[int] | None = None,
        target_queue: str | None = None,
        limit: int | None = None,
    ) -> Redrive:
        """Push the messages of many dead letters again, in the background of the broker."""
        members = _given(
            queue=queue,
            partition=partition,
            consumerGroup=group,
            error=error,
            ids=ids,
            target=None if target_queue is None else {"queue": target_queue},
            limit=limit,
            # Ours, so that a request repeated after a lost answer starts nothing new.
            id=str(uuid4()),
        )
        return self._ask(Redrive, "POST", "dlq/redrive", members=members)

    def show_redrive(self, redrive_id: str) -> Redrive:
        """Return how far a redrive is."""
        return self._ask(Redrive, "GET", "dlq/redrive", redrive_id)

    def cancel_redrive(self, redrive_id: str) -> Redrive:
        """End a redrive; messages that were moved stay moved."""
        return self._ask(Redrive, "POST", "dlq/redrive", redrive_id, "cancel")


class Traces(_Resource):
    """Events noted about messages."""

    def record(
        self,
        partition_id: str,
        message: str,
        data: Any,
        *,
        event_type: str = "info",
        names: Sequence[str] = (),
        group: str | None = None,
    ) -> str:
        """Note an event about a message, under names to find it by; return the event's id."""
        members: Json = {
            "transactionId": message,
            "partitionId": partition_id,
            "data": data,
            "eventType": event_type,
            "traceNames": list(names),
            "consumerGroup": group,
        }
        return str((self._ask(Json, "POST", "traces", members=members))["traceId"])

    def of_message(self, partition_id: str, message: str) -> list[Trace]:
        """Return the events of a message, oldest first."""
        return (self._ask(_TracePage, "GET", "traces", partition_id, message)).traces

    def by_name(self, name: str, *, limit: int = 100, offset: int = 0) -> list[FiledTrace]:
        """Return the events filed under a name, oldest first."""
        segments = ("traces/by-name", name)
        return (self._ask(_FiledPage, "GET", *segments, limit=limit, offset=offset)).traces

    def names(self, *, limit: int = 50, offset: int = 0) -> list[Json]:
        """Return the names events are filed under, last seen first."""
        page = self._ask(Json, "GET", "traces/names", limit=limit, offset=offset)
        return page["trace_names"]


class Scheduled(_Resource):
    """Messages that wait for their time."""

    def find(
        self, *, queue: str | None = None, partition: str | None = None, limit: int = 100
    ) -> list[ScheduledMessage]:
        """Return messages that wait."""
        page = self._ask(
            _ScheduledPage, "GET", "scheduled", queue=queue, partition=partition, limit=limit
        )
        return page.messages

    def cancel(self, scheduled_id: str) -> None:
        """Cancel a message whose time has not come."""
        self._tell("DELETE", "scheduled", scheduled_id)

    def deliver(self, scheduled_id: str) -> None:
        """Deliver a message now."""
        self._tell("POST", "scheduled", scheduled_id, "deliver")


class _TracePage(msgspec.Struct):
    traces: list[Trace]


class _FiledPage(msgspec.Struct):
    traces: list[FiledTrace]


class _ScheduledPage(msgspec.Struct):
    messages: list[ScheduledMessage]


def _group_segments(group: str, queue: str, partition: str | None = None) -> tuple[str, ...]:
    where = () if partition is None else ("partitions", partition)
    return ("consumer-groups", group, "queues", queue, *where)


def _given(**members: object) -> Json:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
