"""The hot routes: push, pop, ack, lease, transaction, keys, locks, reads by offset.

Each handler gets its caller, decodes its request, passes it to the broker and returns; the broker
calls back with the result, which answers the exchange. Nothing here awaits. With authentication the
guard identifies the caller, and checks a restricted one once more when the request is decoded.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from time import perf_counter
from typing import Final, TypeAlias

import msgspec

from skep.broker.ack.accept import Ack
from skep.broker.ack.naming import is_named, named_message, named_partition
from skep.broker.ack.renew import Renew, Renewal
from skep.broker.fetch.accept import Fetches
from skep.broker.fetch.accept import planned as planned_fetch
from skep.broker.fetch.execute import render as render_fetch
from skep.broker.fetch.request import FetchBody
from skep.broker.kv.accept import Kv, KvCall
from skep.broker.kv.answer import render
from skep.broker.kv.operations import planned, planned_rider, read_operations
from skep.broker.locks import operations as lock_operations
from skep.broker.locks.hold import LockResult
from skep.broker.locks.wait import Locks
from skep.broker.pop.accept import Deliver, Poll, PollOptions, Pop
from skep.broker.pop.discovery import Discovery, Permitted, Search
from skep.broker.push.accept import Push
from skep.broker.timestamps import wire_time
from skep.broker.transaction.transaction import Transaction
from skep.model.errors import BadRequest, NotFound
from skep.model.limits import LEASE_SECONDS_MAX, POP_BATCH_MAX, POP_PARTITIONS_MAX, WAIT_MS_MAX
from skep.model.names import check_name, check_optional_name
from skep.model.wire import (
    DEFAULT_PARTITION,
    QUEUE_MODE,
    AckBatchBody,
    AckItem,
    ExtendBody,
    TransactionAck,
    TransactionBody,
)
from skep.server.api_document.operations import level_of
from skep.server.auth.access import Level
from skep.server.auth.guard import Guard, IdentifiedHandler
from skep.server.auth.identity import ANYONE, Identity
from skep.server.hot.decoding import (
    decode_body,
    read_flag,
    read_subscription,
    read_uuid,
)
from skep.server.hot.exchange import (
    Exchange,
    HotHandler,
    HotRoutes,
    decode_segment,
    parse_query,
)
from skep.server.hot.pushed_items import TRANSACTION_WORDS, ItemDecoder
from skep.settings import Settings
from skep.telemetry.meters import Meters
from skep.telemetry.tracing import CONTEXT_HEADERS, Carrier, Propagation

_ACK: Final = msgspec.json.Decoder(AckItem)
_ACK_BATCH: Final = msgspec.json.Decoder(AckBatchBody)
_EXTEND: Final = msgspec.json.Decoder(ExtendBody)
_FETCH: Final = msgspec.json.Decoder(FetchBody)

_ACK_WORDS: Final = {
    ".transactionId": "transactionId is required",
    ".partitionId": "partitionId is required to ensure message uniqueness",
}
_ACK_BATCH_WORDS: Final = {
    ".acknowledgments": "acknowledgments array is required",
    ".acknowledgments[].transactionId": (
        "Each acknowledgment must have a valid transactionId string"
    ),
    ".acknowledgments[].partitionId": "Each acknowledgment must have a valid partitionId string",
}

_POP_PREFIX: Final = b"/api/v1/pop/queue/"
_PARTITION_MARK: Final = b"/partition/"
_LEASE_PREFIX: Final = b"/api/v1/lease/"
_EXTEND_SUFFIX: Final = b"/extend"

AUTOPILOT_BATCH: Final = 200
AUTOPILOT_PARTITIONS: Final = 10
RENEWAL_SECONDS: Final = 60

_encode = msgspec.json.encode


_Body: TypeAlias = bytes | None
"""An alias, because annotations of inner functions are evaluated with every call."""


class HotHandlers:
    """Handlers of the hot routes."""

    def __init__(
        self,
        *,
        push: Push,
        pop: Pop,
        ack: Ack,
        transaction: Transaction,
        discovery: Discovery,
        renew: Renew,
        kv: Kv,
        locks: Locks,
        fetches: Fetches,
        guard: Guard,
        settings: Settings,
        now: Callable[[], float],
        meters: Meters,
        tracing: Propagation | None,
    ) -> None:
        self._push: Final = push
        self._pop: Final = pop
        self._ack: Final = ack
        self._transaction: Final = transaction
        self._discovery: Final = discovery
        self._renew: Final = renew
        self._kv: Final = kv
        self._locks: Final = locks
        self._fetches: Final = fetches
        self._guard: Final = guard
        self._settings: Final = settings
        self._now: Final = now
        self._meters: Final = meters
        self._tracing: Final = tracing
        self._decode: Final = ItemDecoder(meters, is_strict=settings.strict)

    def routes(self) -> HotRoutes:
        """Return the table of the hot routes."""
        routes = HotRoutes(preview=self._guard.preview)
        let = self._let
        routes.add(b"POST", b"/api/v1/push", let("pushMessages", self.push))
        routes.add(b"POST", b"/api/v1/ack", let("ackMessage", self.ack))
        routes.add(b"POST", b"/api/v1/ack/batch", let("ackMessages", self.ack_batch))
        routes.add(b"GET", b"/api/v1/pop", let("popDiscovered", self.pop_discovered))
        routes.add(
            b"POST", b"/api/v1/transaction", let("commitTransaction", self.commit_transaction)
        )
        routes.add(b"POST", b"/api/v1/kv", let("callKeys", self.call_keys))
        routes.add(b"POST", b"/api/v1/locks", let("callLocks", self.call_locks))
        routes.add(b"POST", b"/api/v1/fetch", let("fetchMessages", self.fetch))
        routes.add_prefix(b"GET", _POP_PREFIX, let("popMessages", self.pop))
        extend = let("extendLease", self.extend_lease)
        routes.add_prefix(b"POST", _LEASE_PREFIX, extend, suffix=_EXTEND_SUFFIX)
        return routes

    def _let(self, operation_id: str, handler: IdentifiedHandler) -> HotHandler:
        """Count requests, and admit callers of the level that the operation declares."""
        meter = self._meters.routes[handler.__name__]
        if not self._guard.is_guarded:

            def run(exchange: Exchange) -> None:
                exchange.meter, exchange.began = meter, perf_counter()
                handler(exchange, ANYONE)

            return run
        guarded = self._guard.wrap(level_of(operation_id), handler)

        def run_guarded(exchange: Exchange) -> None:
            exchange.meter, exchange.began = meter, perf_counter()
            guarded(exchange)

        return run_guarded

    def push(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/push`."""
        items = self._decode.push(exchange.body)
        if not items:
            exchange.respond(201, b"[]")
            return
        if self._tracing is not None:
            ended = self._tracing.sending(_carrier(exchange), items)
            exchange.traced = lambda _status, _body, error: ended(error)

        size, producer = len(exchange.body), identity.subject
        if identity.grants is None:
            self._push.push(items, exchange, size=size, producer=producer)
        else:
            store = partial(self._push.push, items, exchange, size=size, producer=producer)
            self._guard.admit(exchange, identity, store, queues={item.queue for item in items})

    def pop(self, exchange: Exchange, identity: Identity) -> None:
        """`GET /api/v1/pop/queue/{queue}[/partition/{partition}]`."""
        head = exchange.head
        if head.reading is None:
            queue, partition = _pop_target(head.path)
            head.reading = self._poll_options(queue, partition, parse_query(head.query))
        self._pop_queue(exchange, identity, *head.reading)

    def _pop_queue(
        self, exchange: Exchange, identity: Identity, options: PollOptions, wait_ms: int
    ) -> None:
        deliver = _pop_answer(exchange)
        if self._tracing is not None:
            deliver = self._tracing.receiving(
                _carrier(exchange), options.queue, options.group, deliver
            )
        poll = Poll(
            options,
            deadline=self._now() + wait_ms / 1000,
            answer=deliver,
            refuse=exchange.refuse,
        )

        def serve() -> None:
            exchange.when_aborted(lambda: self._pop.abort(poll))
            self._pop.pop(poll, waits=wait_ms > 0)

        if identity.grants is None:
            serve()
        else:
            self._guard.admit(exchange, identity, serve, queues={options.queue})

    def pop_discovered(self, exchange: Exchange, identity: Identity) -> None:
        """`GET /api/v1/pop?namespace=&task=`, or `?queue=&partition=` instead of a path."""
        query = parse_query(exchange.head.query)
        if query.get("queue"):
            queue = check_name("queue", query["queue"])
            partition = check_optional_name("partition", query.get("partition")) or None
            self._pop_queue(exchange, identity, *self._poll_options(queue, partition, query))
            return
        namespace = check_optional_name("namespace", query.get("namespace"))
        task = check_optional_name("task", query.get("task"))
        if not namespace and not task:
            raise BadRequest("namespace or task is required")
        options, wait_ms = self._poll_options("", None, query)
        search = Search(
            options,
            namespace=namespace,
            task=task,
            deadline=self._now() + wait_ms / 1000,
            answer=_pop_answer(exchange),
            refuse=exchange.refuse,
            permitted=self._permitted(identity),
            waits=wait_ms > 0,
        )
        exchange.when_aborted(lambda: self._discovery.abort(search))
        self._discovery.pop_discovered(search)

    def _permitted(self, identity: Identity) -> Permitted | None:
        """Return the filter of queues for a restricted caller."""
        if identity.grants is None:
            return None
        scopes = self._guard.scopes
        return lambda queues: scopes.permitted(identity, Level.READ_WRITE, queues)

    def ack(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/ack`."""
        item = decode_body(_ACK, exchange.body, _ACK_WORDS)
        if not is_named(item):
            raise _unnamed(item, ".", _ACK_WORDS)
        named_message(item)
        self._acknowledge(exchange, identity, [item], None, is_batch=False)

    def ack_batch(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/ack/batch`."""
        body = decode_body(_ACK_BATCH, exchange.body, _ACK_BATCH_WORDS)
        for item in body.acknowledgments:
            if not is_named(item):
                raise _unnamed(item, ".acknowledgments[].", _ACK_BATCH_WORDS)
        # The group of the body overrides those of the items; items without either have the
        # default group.
        self._acknowledge(
            exchange, identity, body.acknowledgments, body.consumer_group, is_batch=True
        )

    def _acknowledge(
        self,
        exchange: Exchange,
        identity: Identity,
        items: list[AckItem],
        group: str | None,
        *,
        is_batch: bool,
    ) -> None:
        if self._tracing is not None:
            own_group = items[0].consumer_group if items else None
            settled = self._tracing.settling(_carrier(exchange), group or own_group, len(items))
            # A 202 has no results yet.
            exchange.traced = lambda status, body, error: settled(
                body[1:-1] if status == 200 else None, error
            )

        if identity.grants is None:
            self._ack.ack(items, group, exchange, is_batch=is_batch)
        else:
            acknowledge = partial(self._ack.ack, items, group, exchange, is_batch=is_batch)
            self._guard.admit(exchange, identity, acknowledge, partitions=_partitions(items))

    def commit_transaction(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/transaction`."""
        body = self._decode.transaction(exchange.body)
        for operation in body.operations:
            if isinstance(operation, TransactionAck) and not is_named(operation):
                raise _unnamed(operation, ".operations[].", TRANSACTION_WORDS)

        keys = planned_rider(body.kv) if body.kv else None
        for namespace in keys.namespaces if keys else ():
            self._guard.scopes.require_namespace(identity, Level.READ_WRITE, namespace)

        def commit() -> None:
            self._transaction.commit(body, exchange, producer=identity.subject, keys=keys)

        if identity.grants is None:
            commit()
        else:
            queues, acks = _targets(body)
            self._guard.admit(
                exchange, identity, commit, queues=queues, partitions=_partitions(acks)
            )

    def extend_lease(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/lease/{leaseId}/extend`.

        The id is the permission: it cannot be guessed, and only consumers of the queue know it.
        """
        del identity
        text = decode_segment(exchange.head.path[len(_LEASE_PREFIX) : -len(_EXTEND_SUFFIX)])
        seconds = None
        if exchange.body:
            seconds = decode_body(_EXTEND, exchange.body, {}).seconds
        seconds = RENEWAL_SECONDS if seconds is None else seconds
        if not 1 <= seconds <= LEASE_SECONDS_MAX:
            raise BadRequest(f"seconds must be between 1 and {LEASE_SECONDS_MAX}")
        lease_id = read_uuid("leaseId", text)

        def answer(renewal: Renewal) -> None:
            if renewal.error is not None:
                exchange.refuse(renewal.error)
            else:
                exchange.respond(200, _lease_body(text, renewal.expires_at))

        self._renew.renew_lease(Renewal(lease_id, seconds, answer))

    def call_keys(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/kv`."""
        plan = planned(read_operations(exchange.body))
        for namespace in plan.namespaces:
            self._guard.scopes.require_namespace(identity, Level.READ_WRITE, namespace)
        self._kv.call(
            KvCall(
                plan,
                answer=lambda outcome: exchange.respond(200, render(plan, outcome)),
                refuse=exchange.refuse,
            )
        )

    def fetch(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/fetch`."""
        fetch = planned_fetch(
            decode_body(_FETCH, exchange.body, {}),
            answer=lambda fetch: exchange.respond(200, render_fetch(fetch)),
            refuse=exchange.refuse,
        )

        def serve() -> None:
            exchange.when_aborted(lambda: self._fetches.abort(fetch))
            self._fetches.fetch(fetch)

        if identity.grants is None:
            serve()
        else:
            queues = {reading.queue for reading in fetch.readings}
            self._guard.admit(exchange, identity, serve, queues=queues, level=Level.READ_ONLY)

    def call_locks(self, exchange: Exchange, identity: Identity) -> None:
        """`POST /api/v1/locks`."""
        operations = lock_operations.read_operations(exchange.body)
        namespace = lock_operations.NAMESPACE
        self._guard.scopes.require_namespace(identity, Level.READ_WRITE, namespace)
        task = asyncio.ensure_future(self._locks.carry_out(operations))
        task.add_done_callback(partial(_answer_locks, exchange))

        def give_up() -> None:
            task.cancel()

        exchange.when_aborted(give_up)

    def _poll_options(
        self, queue: str, partition: str | None, query: dict[str, str]
    ) -> tuple[PollOptions, int]:
        group = check_name("consumerGroup", query.get("consumerGroup") or QUEUE_MODE)
        is_autopilot = _flag(query, "autopilot")
        batch = _whole(
            query, "batch", AUTOPILOT_BATCH if is_autopilot else self._settings.default_batch
        )
        if batch < 1:
            raise BadRequest("batch must be at least 1")
        is_any = partition is None
        partitions = _whole(
            query, "partitions", AUTOPILOT_PARTITIONS if is_autopilot and is_any else 1
        )
        wait_ms = (
            _whole(query, "timeout", self._settings.default_wait_ms) if _flag(query, "wait") else 0
        )
        if wait_ms < 0:
            raise BadRequest("timeout must not be negative")
        creates = _choice(query, "create")
        batch = min(batch, POP_BATCH_MAX)
        partitions = POP_PARTITIONS_MAX if partitions < 1 else min(partitions, POP_PARTITIONS_MAX)
        options = PollOptions(
            queue=queue,
            group=group,
            partition=partition,
            batch=batch,
            partitions=partitions,
            auto_ack=_flag(query, "autoAck"),
            lease_s=min(max(_whole(query, "leaseSeconds", 0), 0), LEASE_SECONDS_MAX),
            subscription=read_subscription(
                group,
                mode=query.get("subscriptionMode"),
                start=query.get("subscriptionFrom"),
                default_mode=self._settings.default_subscription_mode,
            ),
            extra=_autopilot_echo(batch, partitions) if is_autopilot else b"",
            conflation=_choice(query, "conflation"),
            creates=self._settings.polls_create_queues if creates is None else creates,
        )
        if options.conflation and (group == QUEUE_MODE or options.auto_ack):
            raise BadRequest("conflation needs a consumerGroup and excludes autoAck")
        return options, min(wait_ms, WAIT_MS_MAX)


def _answer_locks(exchange: Exchange, task: asyncio.Task[list[LockResult]]) -> None:
    """Answer a call on locks, unless its client has gone."""
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        exchange.refuse(error)
    else:
        exchange.respond(200, _encode({"results": task.result()}))


def _pop_target(path: bytes) -> tuple[str, str | None]:
    """Return the queue and, if the path names one, the partition."""
    queue, mark, partition = path[len(_POP_PREFIX) :].partition(_PARTITION_MARK)
    if b"/" in queue or b"/" in partition:
        raise NotFound("no such path; a slash inside a name is written %2F")
    queue_name = check_name("queue", decode_segment(queue))
    if not mark:
        return queue_name, None
    return queue_name, check_name("partition", decode_segment(partition) or DEFAULT_PARTITION)


def _unnamed(item: AckItem, path: str, words: dict[str, str]) -> BadRequest:
    """Return the refusal of an item that does not say which message it is about."""
    missing = "transactionId" if item.transaction_id is None else "partitionId"
    return BadRequest(f"{words[path + missing]} (or a messageId)")


def _partitions(items: Sequence[AckItem]) -> set[int]:
    """Return the partitions of acknowledgments; malformed ids are answered later."""
    found = set(map(named_partition, items))
    return {partition_id for partition_id in found if partition_id is not None}


def _targets(body: TransactionBody) -> tuple[set[str], list[TransactionAck]]:
    """Return the queues that a transaction pushes to, and its acks."""
    queues: set[str] = set()
    acks: list[TransactionAck] = []
    for operation in body.operations:
        if isinstance(operation, TransactionAck):
            acks.append(operation)
            continue
        queues |= {item.queue for item in operation.items or ()}
        if operation.queue is not None:
            queues.add(operation.queue)
    return queues, acks


def _pop_answer(exchange: Exchange) -> Deliver:
    def answer(body: _Body) -> bool:
        return exchange.respond(204) if body is None else exchange.respond(200, body)

    return answer


def _carrier(exchange: Exchange) -> Carrier:
    """Return the trace headers of a request."""
    found = ((name, exchange.header(name.encode())) for name in CONTEXT_HEADERS)
    return {name: value.decode("latin-1") for name, value in found if value is not None}


def _lease_body(lease_id: str, expires_at: datetime | None) -> bytes:
    """Encode a renewal with the names that clients of different versions expect."""
    expires = None if expires_at is None else wire_time(expires_at).decode()
    return _encode(
        {
            "index": 0,
            "leaseId": lease_id,
            "success": expires is not None,
            "error": None if expires else "Lease not found or expired",
            "expiresAt": expires,
            "newExpiresAt": expires,
            "lease_expires_at": expires,
        }
    )


def _autopilot_echo(batch: int, partitions: int) -> bytes:
    return b'"autopilot":{"partitions":%d,"batch":%d,"waitMs":0},' % (partitions, batch)


def _flag(query: dict[str, str], name: str) -> bool:
    text = query.get(name)
    return read_flag(name, text) if text else False


def _choice(query: dict[str, str], name: str) -> bool | None:
    """Return a flag; None if it is not given."""
    return _flag(query, name) if query.get(name) else None


def _whole(query: dict[str, str], name: str, default: int) -> int:
    text = query.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number") from None
