"""What a broker has: queues, groups, messages, dead letters, traces, timers, keys.

Each method describes its request, once for both clients. `RequestMethod` makes it a method that
sends the request and returns the answer, or on asyncio a coroutine that does.
"""

from base64 import b64decode, b64encode
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime
from functools import wraps
from types import MethodType
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)
from uuid import uuid4

import msgspec

from skep.client.endpoints import path_of, spell_time
from skep.client.pushes import encode
from skep.client.requests import Pushes, Request, ask, ask_part, tell
from skep.client.values import (
    Changed,
    ChangedPartitions,
    Configured,
    DeadLetter,
    DeadLetterPage,
    Entry,
    EntryPage,
    FiledTrace,
    FoundOffset,
    GroupEntry,
    GroupLag,
    Json,
    LockHolder,
    LockResult,
    LockResults,
    MessagePage,
    PartitionPage,
    QueuePage,
    Redrive,
    ScheduledMessage,
    SeekPreview,
    TimerChange,
    TimerDetail,
    TimerPage,
    Trace,
    read_changed,
    read_offset,
)
from skep.model.errors import BadRequest
from skep.model.wire import DEFAULT_PARTITION

SeekTarget: TypeAlias = Literal["start", "end"] | datetime | int
"""One end of the log, a time, or in one partition the offset to deliver next."""

P = ParamSpec("P")
T = TypeVar("T")


class AsyncSender(Protocol):
    """Sends requests on asyncio."""

    async def send(self, request: Request[T] | Pushes[T]) -> T:
        """Send a request and return its answer."""
        ...


class BlockingSender(Protocol):
    """Sends requests and waits for them."""

    def send(self, request: Request[T] | Pushes[T]) -> T:
        """Send a request and return its answer."""
        ...


S_co = TypeVar("S_co", bound=AsyncSender | BlockingSender, covariant=True)


class Resource(Generic[S_co]):
    """Requests about one kind of thing, and the session that sends them."""

    def __init__(self, session: S_co) -> None:
        self.session: Final = session


class RequestMethod(Generic[P, T]):
    """A method that sends the request which the decorated function describes."""

    def __init__(self, describe: Callable[Concatenate[Any, P], Request[T] | Pushes[T]]) -> None:
        @wraps(describe)
        def send(resource: Any, *args: P.args, **kwargs: P.kwargs) -> Any:
            return resource.session.send(describe(resource, *args, **kwargs))

        self._send: Final = send

    @overload
    def __get__(self, resource: None, owner: object) -> Callable[Concatenate[Any, P], Any]: ...
    @overload
    def __get__(
        self, resource: Resource[AsyncSender], owner: object
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, resource: Resource[BlockingSender], owner: object) -> Callable[P, T]: ...
    def __get__(self, resource: Any, owner: object) -> Any:
        return self._send if resource is None else MethodType(self._send, resource)


class Queues(Resource[S_co]):
    """The queues of a broker."""

    @RequestMethod
    def find(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        search: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> Request[QueuePage]:
        """Return a page of queues."""
        return ask(
            QueuePage,
            "GET",
            "resources/queues",
            namespace=namespace,
            task=task,
            search=search,
            limit=limit,
            offset=offset,
        )

    @RequestMethod
    def configure(
        self,
        queue: str,
        *,
        namespace: str | None = None,
        task: str | None = None,
        replace: bool = False,
        **options: Any,
    ) -> Request[Configured]:
        """Create a queue, or change the options given; None restores a default.

        The options have the names of the wire: `leaseTime=60, retryLimit=5`. Those that are not
        given stay, as do namespace and task, unless `replace` restores their defaults.
        """
        mode = "replace" if replace else None
        members = {"queue": queue, "options": options}
        members |= _given(namespace=namespace, task=task, mode=mode)
        return ask(Configured, "POST", "configure", members=members)

    @RequestMethod
    def configuration(self, queue: str) -> Request[Configured]:
        """Return all options of a queue."""
        return ask(Configured, "GET", "queues", queue, "config")

    @RequestMethod
    def describe(self, queue: str, *, partition_limit: int = 100) -> Request[Json]:
        """Return everything about a queue: options, groups, partitions, counts."""
        return ask(Json, "GET", "resources/queues", queue, partitionLimit=partition_limit)

    @RequestMethod
    def partitions(
        self,
        queue: str | None = None,
        *,
        search: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Request[PartitionPage]:
        """Return a page of partitions, of one queue or of all."""
        return ask(
            PartitionPage,
            "GET",
            "resources/partitions",
            queue=queue,
            search=search,
            after=after,
            limit=limit,
        )

    @RequestMethod
    def depth(self, queue: str, *, group: str | None = None) -> Request[Json]:
        """Count the messages that wait in a queue, by partition."""
        return ask(Json, "GET", "resources/queues", queue, "depth", group=group)

    @RequestMethod
    def offset_at(
        self, queue: str, moment: datetime, *, partition: str = DEFAULT_PARTITION
    ) -> Request[FoundOffset]:
        """Return where a time begins in a partition, to fetch from there."""
        entry = {"queue": queue, "partition": partition, "timestamp": spell_time(moment)}
        return Request("POST", path_of("fetch/offsets"), read_offset, encode({"entries": [entry]}))

    @RequestMethod
    def changed(
        self,
        queue: str,
        since: datetime | None = None,
        *,
        after: str | None = None,
        limit: int = 1000,
    ) -> Request[ChangedPartitions]:
        """Return a page of the partitions that were written at a time or later, oldest first."""
        spelled = None if since is None else spell_time(since)
        entry = {"queue": queue, "limit": limit, **_given(since=spelled, after=after)}
        body = encode({"entries": [entry]})
        return Request("POST", path_of("partitions/changed"), read_changed, body)

    @RequestMethod
    def pause(self, queue: str) -> Request[None]:
        """Deliver nothing of a queue until it is resumed."""
        return tell("POST", "queues", queue, "pause")

    @RequestMethod
    def resume(self, queue: str) -> Request[None]:
        """Deliver a paused queue again."""
        return tell("POST", "queues", queue, "resume")

    @RequestMethod
    def clear(self, queue: str, *, partition: str | None = None) -> Request[Json]:
        """Drop all messages of a queue, or of one of its partitions."""
        return ask(Json, "DELETE", "queues", queue, "clear", partition=partition)

    @RequestMethod
    def delete(self, queue: str) -> Request[bool]:
        """Delete a queue with its messages, groups and dead letters; return whether it existed."""
        return ask_part(bool, "existed", "DELETE", "resources/queues", queue)


class Groups(Resource[S_co]):
    """The consumer groups of a broker."""

    @RequestMethod
    def find(
        self,
        *,
        queue: str | None = None,
        condition: str | None = None,
        sort: Literal["name", "worst"] = "name",
        limit: int = 1000,
        offset: int = 0,
    ) -> Request[list[GroupEntry]]:
        """Return groups, one entry per group and queue."""
        return ask(
            list[GroupEntry],
            "GET",
            "consumer-groups",
            queue=queue,
            condition=condition,
            sort=sort,
            limit=limit,
            offset=offset,
        )

    @RequestMethod
    def lagging(self, *, min_lag_s: int = 3600, limit: int = 100) -> Request[list[Json]]:
        """Return the partitions whose first unread message is oldest."""
        return ask(
            list[Json], "GET", "consumer-groups/lagging", minLagSeconds=min_lag_s, limit=limit
        )

    @RequestMethod
    def describe(self, group: str) -> Request[Json]:
        """Return the progress of a group in its partitions, by queue."""
        return ask(Json, "GET", "consumer-groups", group)

    @RequestMethod
    def lag(
        self, group: str, queue: str, *, limit: int = 100, offset: int = 0
    ) -> Request[GroupLag]:
        """Return how far a group is behind, in messages and seconds."""
        path = _group_path(group, queue)
        return ask(GroupLag, "GET", *path, "lag", limit=limit, offset=offset)

    @RequestMethod
    def seek(
        self,
        group: str,
        queue: str,
        to: SeekTarget,
        *,
        partition: str | None = None,
        create: bool = False,
    ) -> Request[Json]:
        """Move a group, in all partitions or in one. Messages it passes over are not delivered.

        `create` subscribes the group if it does not exist.
        """
        if isinstance(to, int) and partition is None:
            raise BadRequest(f"cannot seek to offset {to} in all partitions: name a partition")
        if isinstance(to, str):
            members: Json = {"toStart": to == "start", "toEnd": to == "end"}
        elif isinstance(to, datetime):
            members = {"timestamp": spell_time(to)}
        else:
            members = {"offset": to}
        segments = (*_group_path(group, queue, partition), "seek")
        return ask(Json, "POST", *segments, members={**members, "create": create})

    @RequestMethod
    def preview_seek(
        self, group: str, queue: str, to: SeekTarget, *, partition: str | None = None
    ) -> Request[SeekPreview]:
        """Return how many messages a seek would skip and replay."""
        name = "to" if isinstance(to, str) else "offset" if isinstance(to, int) else "timestamp"
        segments = (*_group_path(group, queue, partition), "seek", "preview")
        return ask(SeekPreview, "GET", *segments, **{name: to})

    @RequestMethod
    def positions(self, group: str, queue: str, *, limit: int = 1000) -> Request[dict[str, int]]:
        """Return the last offset that is done, by partition."""
        segments = _group_path(group, queue)
        return ask_part(dict[str, int], "offsets", "GET", *segments, "offsets", limit=limit)

    @RequestMethod
    def set_positions(self, group: str, queue: str, offsets: dict[str, int]) -> Request[Json]:
        """Set the last offset that is done, by partition."""
        segments = (*_group_path(group, queue), "offsets")
        return ask(Json, "PUT", *segments, members={"offsets": offsets})

    @RequestMethod
    def pause(self, group: str, queue: str) -> Request[None]:
        """Deliver nothing more to a group."""
        return tell("POST", *_group_path(group, queue), "pause")

    @RequestMethod
    def resume(self, group: str, queue: str) -> Request[None]:
        """Deliver to a group again."""
        return tell("POST", *_group_path(group, queue), "resume")

    @RequestMethod
    def delete(self, group: str, queue: str | None = None) -> Request[Json]:
        """Forget the progress of a group, on one queue or on all."""
        segments = ("consumer-groups", group) if queue is None else _group_path(group, queue)
        return ask(Json, "DELETE", *segments)


class Messages(Resource[S_co]):
    """Messages, one by one. A message goes by its transaction id or its message id."""

    @RequestMethod
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
    ) -> Request[MessagePage]:
        """Return a page of messages, the newest first; of the last hour if no time is given."""
        return ask(
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

    @RequestMethod
    def peek(
        self,
        queue: str,
        *,
        group: str | None = None,
        partition: str | None = None,
        limit: int = 10,
    ) -> Request[list[Json]]:
        """Return what a group would get next, claiming nothing."""
        return ask_part(
            list[Json],
            "messages",
            "GET",
            "messages/peek",
            queue=queue,
            partition=partition,
            consumerGroup=group,
            limit=limit,
        )

    @RequestMethod
    def show(self, partition_id: str, message: str) -> Request[Json]:
        """Return a message with its payload."""
        return ask(Json, "GET", "messages", partition_id, message)

    @RequestMethod
    def delete(self, partition_id: str, message: str) -> Request[Json]:
        """Delete a message for all groups, with its dead letters."""
        return ask(Json, "DELETE", "messages", partition_id, message)

    @RequestMethod
    def retry(self, partition_id: str, message: str, *, group: str | None = None) -> Request[Json]:
        """Deliver a message that failed again, now."""
        members = {"consumerGroup": group}
        return ask(Json, "POST", "messages", partition_id, message, "retry", members=members)

    @RequestMethod
    def dead_letter(
        self, partition_id: str, message: str, *, group: str | None = None, error: str | None = None
    ) -> Request[Json]:
        """Move a message to the dead letters."""
        members = {"consumerGroup": group, "error": error}
        return ask(Json, "POST", "messages", partition_id, message, "dlq", members=members)


class DeadLetters(Resource[S_co]):
    """Messages that groups gave up on."""

    @RequestMethod
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
    ) -> Request[DeadLetterPage]:
        """Return a page of dead letters, the newest failure first."""
        return ask(
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

    @RequestMethod
    def show(self, dlq_id: int) -> Request[DeadLetter]:
        """Return a dead letter."""
        return ask(DeadLetter, "GET", "dlq", str(dlq_id))

    @RequestMethod
    def replay(
        self,
        dlq_id: int,
        *,
        queue: str | None = None,
        partition: str | None = None,
        groups: Literal["failed", "all"] | None = None,
    ) -> Request[Json]:
        """Push the message of a dead letter again: where it was, or to another queue.

        Only the group that failed gets it if it reads that queue, unless `groups` is `all`.
        """
        members = _given(queue=queue, partition=partition, groups=groups)
        return ask(Json, "POST", "dlq", str(dlq_id), "replay", members=members)

    @RequestMethod
    def delete(self, dlq_id: int) -> Request[None]:
        """Delete a dead letter; its message stays with other groups."""
        return tell("DELETE", "dlq", str(dlq_id))

    @RequestMethod
    def purge(self, *, queue: str, group: str | None = None) -> Request[int]:
        """Delete all dead letters of a queue, or of one of its groups; return how many."""
        return ask_part(int, "deleted", "DELETE", "dlq", queue=queue, consumerGroup=group)

    @RequestMethod
    def redrive(
        self,
        *,
        queue: str | None = None,
        partition: str | None = None,
        group: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        error: str | None = None,
        ids: Sequence[int] | None = None,
        target_queue: str | None = None,
        target_partition: str | None = None,
        groups: Literal["failed", "all"] | None = None,
        limit: int | None = None,
        again: bool | None = None,
    ) -> Request[Redrive]:
        """Push the messages of many dead letters again, in the background of the broker.

        Only the group that failed gets them if it reads the target, unless `groups` is `all`. Ids
        that were redriven already are refused, unless `again`.
        """
        members = _given(
            queue=queue,
            partition=partition,
            consumerGroup=group,
            error=error,
            ids=ids,
            target=_given(queue=target_queue, partition=target_partition, groups=groups) or None,
            limit=limit,
            again=again,
            # Ours, so that a request repeated after a lost answer starts nothing new.
            id=str(uuid4()),
            **{"from": since, "to": until},
        )
        return ask(Redrive, "POST", "dlq/redrive", members=members)

    @RequestMethod
    def show_redrive(self, redrive_id: str) -> Request[Redrive]:
        """Return how far a redrive is."""
        return ask(Redrive, "GET", "dlq/redrive", redrive_id)

    @RequestMethod
    def cancel_redrive(self, redrive_id: str) -> Request[Redrive]:
        """End a redrive; messages that were moved stay moved."""
        return ask(Redrive, "POST", "dlq/redrive", redrive_id, "cancel")


class Traces(Resource[S_co]):
    """Events noted about messages."""

    @RequestMethod
    def record(
        self,
        partition_id: str,
        message: str,
        data: Any,
        *,
        event_type: str = "info",
        names: Sequence[str] = (),
        group: str | None = None,
    ) -> Request[str]:
        """Note an event about a message, under names to find it by; return the event's id."""
        members: Json = {
            "transactionId": message,
            "partitionId": partition_id,
            "data": data,
            "eventType": event_type,
            "traceNames": list(names),
            "consumerGroup": group,
        }
        return ask_part(str, "traceId", "POST", "traces", members=members)

    @RequestMethod
    def of_message(self, partition_id: str, message: str) -> Request[list[Trace]]:
        """Return the events of a message, oldest first."""
        return ask_part(list[Trace], "traces", "GET", "traces", partition_id, message)

    @RequestMethod
    def by_name(self, name: str, *, limit: int = 100, offset: int = 0) -> Request[list[FiledTrace]]:
        """Return the events filed under a name, oldest first."""
        page = {"limit": limit, "offset": offset}
        return ask_part(list[FiledTrace], "traces", "GET", "traces/by-name", name, **page)

    @RequestMethod
    def names(self, *, limit: int = 50, offset: int = 0) -> Request[list[Json]]:
        """Return the names events are filed under, last seen first."""
        page = {"limit": limit, "offset": offset}
        return ask_part(list[Json], "trace_names", "GET", "traces/names", **page)


class Scheduled(Resource[S_co]):
    """Messages that wait for their time."""

    @RequestMethod
    def find(
        self, *, queue: str | None = None, partition: str | None = None, limit: int = 100
    ) -> Request[list[ScheduledMessage]]:
        """Return messages that wait."""
        query = {"queue": queue, "partition": partition, "limit": limit}
        return ask_part(list[ScheduledMessage], "messages", "GET", "scheduled", **query)

    @RequestMethod
    def cancel(self, scheduled_id: str) -> Request[None]:
        """Cancel a message whose time has not come."""
        return tell("DELETE", "scheduled", scheduled_id)

    @RequestMethod
    def deliver(self, scheduled_id: str) -> Request[None]:
        """Deliver a message now."""
        return tell("POST", "scheduled", scheduled_id, "deliver")


class Timers(Resource[S_co]):
    """Messages for later under keys of the caller's own, which replace and cancel them.

    A request whose answer is lost is sent again: scheduling the same timer once more replaces it,
    and its transaction id keeps it from being delivered twice within the window of its queue.
    """

    @RequestMethod
    def schedule(
        self,
        queue: str,
        timer_key: str,
        payload: Any,
        *,
        delay_s: float,
        partition: str | None = None,
        transaction_id: str | None = None,
    ) -> Request[TimerChange]:
        """Schedule a message, in place of the one that waits under this key."""
        members = _given(
            op="schedule",
            queue=queue,
            timerKey=timer_key,
            delayMs=round(delay_s * 1000),
            payload=b64encode(encode(payload)).decode(),
            partition=partition,
            txn=transaction_id or str(uuid4()),
        )
        body = encode({"operations": [members]})
        return Request("POST", path_of("timers"), _read_timer_change, body)

    @RequestMethod
    def cancel(self, queue: str, timer_key: str) -> Request[TimerChange]:
        """Cancel a timer; false if none waits under the key."""
        return ask(TimerChange, "DELETE", "timers", queue, timer_key)

    @RequestMethod
    def get(self, queue: str, timer_key: str) -> Request[TimerDetail | None]:
        """Return a timer with its payload; None if none waits under the key."""
        return Request("GET", path_of("timers", queue, timer_key), _read_timer)

    @RequestMethod
    def find(self, queue: str, *, after: str | None = None, limit: int = 100) -> Request[TimerPage]:
        """Return a page of the timers of a queue."""
        return ask(TimerPage, "GET", "timers", queue, after=after, limit=limit)

    @RequestMethod
    def count(self, queue: str, prefix: str) -> Request[int]:
        """Return how many timers of a queue have a key that begins with a prefix."""
        return ask_part(int, "count", "GET", "timers", queue, mode="count", prefix=prefix)


def _read_timer_change(body: bytes) -> TimerChange:
    return _decode_timer_changes(body).results[0]


def _read_timer(body: bytes) -> TimerDetail | None:
    found = msgspec.json.decode(body)
    if not found["found"]:
        return None
    payload = found.pop("payload")
    raw = encode(payload) if found["encrypted"] else b64decode(payload)
    return msgspec.convert({**found, "payload": msgspec.Raw(raw)}, TimerDetail)


class Locks(Resource[S_co]):
    """Who holds locks; `client.lock` and `client.semaphore` acquire them."""

    @RequestMethod
    def holders(self, name: str) -> Request[list[LockHolder]]:
        """Return who holds permits of a lock, by slot."""
        return self._one(lambda result: result.holders, {"op": "get", "name": name})

    @RequestMethod
    def release(self, name: str, token: int, *, slot: int = 0) -> Request[bool]:
        """Take a permit from its holder; false if the token is not that of the permit any more."""
        members = {"op": "release", "name": name, "token": token, "slot": slot}
        return self._one(lambda result: result.released, members)

    def _one(self, read: Callable[[LockResult], T], members: Json) -> Request[T]:
        body = encode({"operations": [members]})

        def read_body(answer: bytes) -> T:
            return read(_decode_locks(answer).results[0])

        return Request("POST", path_of("locks"), read_body, body)


class Kv(Resource[S_co]):
    """Keys and values.

    A change whose answer is lost is not sent again, because it would count twice: it raises, and
    the caller reads the key. Expiry is said with every change; `ttl_s=None` is never.
    """

    @RequestMethod
    def get(self, ns: str, key: str) -> Request[Entry | None]:
        """Return a key; None if it does not exist."""

        def read(body: bytes) -> Entry | None:
            (found,) = _decode_call(body).results
            return msgspec.convert(found, Entry) if found["found"] else None

        return self._call(read, {"op": "get", "ns": ns, "key": key})

    @RequestMethod
    def find(
        self, ns: str, prefix: str, *, after: str | None = None, limit: int = 100
    ) -> Request[EntryPage]:
        """Return a page of the keys that begin with a prefix."""
        members = _given(op="getPrefix", ns=ns, prefix=prefix, after=after, limit=limit)
        return self._call(lambda body: _decode_pages(body).results[0], members)

    @RequestMethod
    def put(
        self, ns: str, key: str, value: Any, *, ttl_s: int | None, expect: int | None = None
    ) -> Request[Changed]:
        """Store a value, if the key has the expected version; 0: if it does not exist."""
        members = {"op": "put", "ns": ns, "key": key, "value": value, **_expiry(ttl_s)}
        return self._change(members | _given(expect=expect))

    @RequestMethod
    def put_if_absent(
        self, ns: str, key: str, value: Any, *, ttl_s: int | None
    ) -> Request[Changed]:
        """Store a value if the key does not exist: of many callers one succeeds."""
        members = {"op": "putIfAbsent", "ns": ns, "key": key, "value": value}
        return self._change(members | _expiry(ttl_s))

    @RequestMethod
    def incr(
        self,
        ns: str,
        key: str,
        delta: float = 1,
        *,
        ttl_s: int | None,
        min: float | None = None,  # noqa: A002 (the wire's words)
        max: float | None = None,  # noqa: A002
    ) -> Request[Changed]:
        """Add to a number, if it stays within the bounds. An existing one keeps its expiry."""
        members = {"op": "incr", "ns": ns, "key": key, "delta": delta, **_expiry(ttl_s)}
        return self._change(members | _given(min=min, max=max))

    @RequestMethod
    def delete(self, ns: str, key: str, *, expect: int | None = None) -> Request[Changed]:
        """Delete a key, if it has the expected version."""
        return self._change(_given(op="delete", ns=ns, key=key, expect=expect))

    @RequestMethod
    def call(self, operations: Sequence[Json]) -> Request[list[Json]]:
        """Carry out operations as the wire spells them in one commit; return their results.

        If one that is `required` is not applied, nothing is, and all results say so.
        """
        return self._call(lambda body: _decode_call(body).results, *operations)

    def _change(self, members: Json) -> Request[Changed]:
        return self._call(lambda body: _decode_changed(body).results[0], members)

    def _call(self, read: Callable[[bytes], T], *operations: Json) -> Request[T]:
        body = encode({"operations": operations})
        is_repeatable = all(each.get("op") in _READS for each in operations)
        return Request("POST", path_of("kv"), read, body, is_repeatable=is_repeatable)


class _Results(msgspec.Struct, Generic[T]):
    results: list[T]


_decode_locks: Final = msgspec.json.Decoder(LockResults).decode
_decode_timer_changes: Final = msgspec.json.Decoder(_Results[TimerChange]).decode
_READS: Final = frozenset({"get", "getMany", "getPrefix", "check"})
_decode_call: Final = msgspec.json.Decoder(_Results[Json]).decode
_decode_changed: Final = msgspec.json.Decoder(_Results[Changed]).decode
_decode_pages: Final = msgspec.json.Decoder(_Results[EntryPage]).decode


def _expiry(ttl_s: int | None) -> Json:
    return {"forever": True} if ttl_s is None else {"ttlSeconds": ttl_s}


def _group_path(group: str, queue: str, partition: str | None = None) -> tuple[str, ...]:
    where = () if partition is None else ("partitions", partition)
    return ("consumer-groups", group, "queues", queue, *where)


def _given(**members: object) -> Json:
    """Return the members that are not None."""
    return {name: value for name, value in members.items() if value is not None}
