"""Single messages, dead letters, traces, and messages that wait for their time."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

import msgspec

from skep.client.addresses import path_of
from skep.client.aio.session import Session
from skep.client.items import encode
from skep.client.values import (
    DeadLetter,
    DeadLetterPage,
    FiledTrace,
    Json,
    MessagePage,
    Redrive,
    ScheduledMessage,
    Trace,
)


class _Traces(msgspec.Struct):
    traces: list[Trace]


class _FiledTraces(msgspec.Struct):
    traces: list[FiledTrace]


class _ScheduledPage(msgspec.Struct):
    messages: list[ScheduledMessage]


_decode_page: Final = msgspec.json.Decoder(MessagePage).decode
_decode_letters: Final = msgspec.json.Decoder(DeadLetterPage).decode
_decode_letter: Final = msgspec.json.Decoder(DeadLetter).decode
_decode_redrive: Final = msgspec.json.Decoder(Redrive).decode
_decode_traces: Final = msgspec.json.Decoder(_Traces).decode
_decode_filed: Final = msgspec.json.Decoder(_FiledTraces).decode
_decode_scheduled: Final = msgspec.json.Decoder(_ScheduledPage).decode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Messages:
    """Messages, one by one. A message goes by its transaction id or its message id."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    async def find(
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
        path = path_of(
            "messages",
            queue=queue,
            partition=partition,
            status=status,
            limit=limit,
            cursor=cursor,
            transactionId=transaction_id,
            **{"from": since, "to": until},
        )
        return _decode_page((await self._session.request("GET", path)).body)

    async def peek(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        limit: int = 10,
    ) -> list[Json]:
        """Return what a group would get next, claiming nothing."""
        path = path_of(
            "messages/peek", queue=queue, partition=partition, consumerGroup=group, limit=limit
        )
        return _decode((await self._session.request("GET", path)).body)["messages"]

    async def show(self, partition_id: str, message: str) -> Json:
        """Return a message with its payload."""
        path = path_of("messages", partition_id, message)
        return _decode((await self._session.request("GET", path)).body)

    async def delete(self, partition_id: str, message: str) -> Json:
        """Delete a message for all groups, with its dead letters."""
        path = path_of("messages", partition_id, message)
        return _decode((await self._session.request("DELETE", path)).body)

    async def retry(self, partition_id: str, message: str, *, group: str | None = None) -> Json:
        """Deliver a message that failed again, now."""
        path = path_of("messages", partition_id, message, "retry")
        body = encode({"consumerGroup": group})
        return _decode((await self._session.request("POST", path, body)).body)

    async def dead_letter(
        self, partition_id: str, message: str, *, group: str | None = None, error: str | None = None
    ) -> Json:
        """Move a message to the dead letters."""
        path = path_of("messages", partition_id, message, "dlq")
        body = encode({"consumerGroup": group, "error": error})
        return _decode((await self._session.request("POST", path, body)).body)


class DeadLetters:
    """What groups gave up on."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    async def find(
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
        path = path_of(
            "dlq",
            queue=queue,
            partition=partition,
            consumerGroup=group,
            error=error,
            limit=limit,
            offset=offset,
            **{"from": since, "to": until},
        )
        return _decode_letters((await self._session.request("GET", path)).body)

    async def show(self, dlq_id: int) -> DeadLetter:
        """Return a dead letter."""
        answer = await self._session.request("GET", path_of("dlq", str(dlq_id)))
        return _decode_letter(answer.body)

    async def replay(
        self, dlq_id: int, *, queue: str | None = None, partition: str | None = None
    ) -> Json:
        """Push the message of a dead letter again: where it was, or to another queue."""
        target = {"queue": queue, "partition": partition}
        body = encode({name: value for name, value in target.items() if value is not None})
        path = path_of("dlq", str(dlq_id), "replay")
        return _decode((await self._session.request("POST", path, body)).body)

    async def delete(self, dlq_id: int) -> None:
        """Delete a dead letter; its message stays with other groups."""
        await self._session.request("DELETE", path_of("dlq", str(dlq_id)))

    async def purge(self, *, queue: str, group: str | None = None) -> int:
        """Delete all dead letters of a queue, or of one of its groups; return how many."""
        path = path_of("dlq", queue=queue, consumerGroup=group)
        return int(_decode((await self._session.request("DELETE", path)).body)["deleted"])

    async def redrive(
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
        members: Json = {
            "queue": queue,
            "partition": partition,
            "consumerGroup": group,
            "error": error,
            "ids": ids,
            "target": None if target_queue is None else {"queue": target_queue},
            "limit": limit,
            # Ours, so that a request repeated after a lost answer starts nothing new.
            "id": str(uuid4()),
        }
        body = encode({name: value for name, value in members.items() if value is not None})
        answer = await self._session.request("POST", path_of("dlq/redrive"), body)
        return _decode_redrive(answer.body)

    async def show_redrive(self, redrive_id: str) -> Redrive:
        """Return how far a redrive is."""
        answer = await self._session.request("GET", path_of("dlq/redrive", redrive_id))
        return _decode_redrive(answer.body)

    async def cancel_redrive(self, redrive_id: str) -> Redrive:
        """End a redrive; what was moved stays moved."""
        path = path_of("dlq/redrive", redrive_id, "cancel")
        return _decode_redrive((await self._session.request("POST", path)).body)


class Traces:
    """Events noted about messages."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    async def record(
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
        answer = await self._session.request("POST", path_of("traces"), encode(members))
        return str(_decode(answer.body)["traceId"])

    async def of_message(self, partition_id: str, message: str) -> list[Trace]:
        """Return the events of a message, oldest first."""
        path = path_of("traces", partition_id, message)
        return _decode_traces((await self._session.request("GET", path)).body).traces

    async def by_name(self, name: str, *, limit: int = 100, offset: int = 0) -> list[FiledTrace]:
        """Return the events filed under a name, oldest first."""
        path = path_of("traces/by-name", name, limit=limit, offset=offset)
        return _decode_filed((await self._session.request("GET", path)).body).traces

    async def names(self, *, limit: int = 50, offset: int = 0) -> list[Json]:
        """Return the names events are filed under, last seen first."""
        path = path_of("traces/names", limit=limit, offset=offset)
        return _decode((await self._session.request("GET", path)).body)["trace_names"]


class Scheduled:
    """Messages that wait for their time."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    async def find(
        self, *, queue: str | None = None, partition: str | None = None, limit: int = 100
    ) -> list[ScheduledMessage]:
        """Return messages that wait."""
        path = path_of("scheduled", queue=queue, partition=partition, limit=limit)
        return _decode_scheduled((await self._session.request("GET", path)).body).messages

    async def cancel(self, scheduled_id: str) -> None:
        """Take back a message whose time has not come."""
        await self._session.request("DELETE", path_of("scheduled", scheduled_id))

    async def deliver(self, scheduled_id: str) -> None:
        """Let the time of a message come now."""
        await self._session.request("POST", path_of("scheduled", scheduled_id, "deliver"))
