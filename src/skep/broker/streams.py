"""Streams: register queries, keep their state, commit their cycles.

The operators run in the client; the broker stores a query's state by source partition (a *shard*)
and settles cycles: state changes, results to push and the ack of the source, all or nothing.

Two runners must never emit the same result. A cycle with an ack is fenced by its lease. One
without, the flush of idle windows, is fenced by the state rows it deletes: a row that is gone or
replaced was closed by another runner. Results get transaction ids derived from what they were
computed from, so the same cycle sent twice pushes once.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID, uuid4, uuid5

import msgspec

from skep.broker.ack.naming import is_named, named_message
from skep.broker.cluster.wakeups import Announcer
from skep.broker.timestamps import wire_time
from skep.broker.transaction.settlement import (
    TEXT_BY_REFUSAL,
    Operations,
    Settled,
    Settlement,
    Settler,
    StagedAck,
    StagedPush,
    Stager,
    Unacceptable,
)
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller
from skep.model import stream_wire as wire
from skep.model.errors import BadRequest, InvalidPayload, NotFound, QueueFull, SkepError
from skep.model.ids import message_id, parse_partition_uuid
from skep.model.limits import (
    PUSH_ITEMS_MAX,
    STREAM_SHARD_BYTES_MAX,
    STREAM_STATE_KEY_CHARS_MAX,
    STREAM_STATE_OPERATIONS_MAX,
    STREAM_STATE_VALUE_BYTES_MAX,
)
from skep.model.names import check_name
from skep.model.wire import AckItem, PushItem

CYCLE_CALL: Final = (
    "select * from skep.commit_cycle("
    "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, "
    "$21, $22, $23, $24, $25, $26)"
)
VERSIONS_CALL: Final = (
    "select key, version, offered_version from skep.read_state($1, $2, $3, null, null)"
)

_ERROR_BY_REFUSAL: Final = {
    **TEXT_BY_REFUSAL,
    "no_query": "query not found: register it first",
    "no_partition": "partition not found",
    "state_gone": "state conflict: another runner has closed this window already",
    "state_changed": "state conflict: the row was changed meanwhile",
    "shard_full": f"state of this partition would exceed {STREAM_SHARD_BYTES_MAX} bytes",
}

_DELAY_MS_MAX: Final = 86_400_000


class _Window(msgspec.Struct, rename="camel", gc=False):
    """The one member of a state value that the broker reads."""

    window_end: float | None = None


_window_decoder = msgspec.json.Decoder(_Window)


class Streams:
    """Serves the streams SDK."""

    def __init__(
        self, caller: Caller, stager: Stager, settler: Settler, announcer: Announcer
    ) -> None:
        self._sql: Final = Functions(caller)
        self._stager: Final = stager
        self._settler: Final = settler
        self._announcer: Final = announcer

    async def register(self, body: wire.RegisterBody) -> wire.Registered:
        """Find or create a query; without success its pipeline differs from the stored one."""
        check_name("name", body.name)
        check_name("source_queue", body.source_queue)
        check_name("config_hash", body.config_hash)
        sink_queue = check_name("sink_queue", body.sink_queue) if body.sink_queue else None
        query_id, config_hash, is_fresh, is_reset = await self._sql.row(
            "register_query", body.name, body.source_queue, sink_queue, body.config_hash, body.reset
        )
        if config_hash != body.config_hash:
            text = (
                f"config_hash mismatch: query {body.name!r} is registered with another pipeline "
                f"({config_hash}); register with reset to forget its state, or under another name"
            )
            return wire.Registered(
                success=False, query_id=str(query_id), name=body.name, error=text
            )
        return wire.Registered(
            success=True,
            query_id=str(query_id),
            name=body.name,
            config_hash=config_hash,
            fresh=is_fresh,
            reset=is_reset,
        )

    async def commit_cycle(
        self, body: wire.CycleBody, *, producer: str | None = None
    ) -> wire.CycleAnswer:
        """Do all of a cycle or nothing; `producer` is who sent it, if that is known."""
        query_id, partition_id = _query_uuid(body.query_id), _partition_id(body.partition_id)
        state_ops, items = body.state_ops or [], body.push_items or []
        _check_sizes(body, state_ops, items)
        try:
            ack = _ack_item(body)
            acks = [] if ack is None else [self._stager.stage_ack(ack, ())]
            _check_kinds(state_ops)
            if ack is None:
                state_ops = await self._pin_versions(query_id, partition_id, state_ops)
        except Unacceptable as refusal:
            return _refused(body, refusal.message)
        pushes = self._stage_pushes(query_id, body, _origin(ack, state_ops), items, producer)
        arguments = _arguments(query_id, partition_id, body, state_ops)
        try:
            settled = await self._settle(Operations(pushes, acks, []), arguments)
        except (InvalidPayload, QueueFull):
            queue = await self._find_done(acks)
            if queue is None:
                raise
            settled = Settled("replayed", 0, [], [], {"queue_name": queue})
        return _answer(body, pushes, settled)

    async def _find_done(self, acks: Sequence[StagedAck]) -> str | None:
        """Return the source queue of a cycle that was committed before its sink refused it."""
        for ack in acks:
            if ack.status == "completed":
                return await self._sql.value(
                    "done_source", ack.partition_id, ack.group, ack.offset, ack.key
                )
        return None

    async def _settle(self, operations: Operations, arguments: Sequence[object]) -> Settled:
        done: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()

        def answer(ending: Settled | SkepError) -> None:
            if isinstance(ending, Settled) and ending.refusal in {"state_gone", "state_changed"}:
                # The batch is available again.
                self._announcer.announce(ending.row["queue_id"], 1)
            if done.done():
                return  # the client is gone
            if isinstance(ending, Settled):
                done.set_result(ending)
            else:
                done.set_exception(ending)

        settlement = Settlement(uuid4(), CYCLE_CALL, operations, answer, arguments=arguments)
        self._settler.submit("cycle", settlement)
        return await done

    async def read_state(self, body: wire.StateBody) -> wire.StateAnswer:
        """Return state rows of a shard."""
        query_id, partition_id = _query_uuid(body.query_id), _partition_id(body.partition_id)
        keys = body.keys or []
        for text in (*keys, body.key_prefix or ""):
            _check_key(text)
        rows = await self._sql.rows(
            "read_state", query_id, partition_id, keys, body.key_prefix, body.ripe_at_or_before
        )
        if not rows:
            await self._check_query(query_id)
        return wire.StateAnswer(
            rows=[
                wire.StateRow(
                    key=row["key"],
                    value=msgspec.Raw(row["value"].encode()),
                    version=row["version"],
                    updated_at=wire_time(row["updated_at"]).decode(),
                )
                for row in rows
            ]
        )

    async def list_queries(self, *, limit: int, offset: int) -> wire.QueryPage:
        """Return registered queries by name."""
        rows = await self._sql.rows("list_queries", None, limit, offset)
        return wire.QueryPage(
            queries=[_info(row) for row in rows],
            total=rows[0]["total"] if rows else await self._count(),
            limit=limit,
            offset=offset,
        )

    async def get_query(self, name: str) -> wire.QueryInfo:
        """Return one query."""
        missing = NotFound(f"there is no query {name!r}")
        row = await self._sql.row("list_queries", check_name("name", name), 1, 0, missing=missing)
        return _info(row)

    async def delete_query(self, name: str) -> None:
        """Remove a query and its state."""
        missing = NotFound(f"there is no query {name!r}")
        await self._sql.value("delete_query", check_name("name", name), missing=missing)

    async def _count(self) -> int:
        """Return how many queries there are, for a page behind the last."""
        rows = await self._sql.rows("list_queries", None, 1, 0)
        return rows[0]["total"] if rows else 0

    async def _check_query(self, query_id: UUID) -> None:
        found = await self._sql.call("select 1 from skep.stream_query where id = $1", query_id)
        if not found:
            raise NotFound(_ERROR_BY_REFUSAL["no_query"])

    async def _pin_versions(
        self, query_id: UUID, partition_id: int, state_ops: Sequence[wire.StateOperation]
    ) -> list[wire.StateOperation]:
        """Let deletes name the version of the row they delete.

        The transaction ids of the results are derived from it: a window that was closed, opened
        again by a late message and closed once more has another result, which is no duplicate.
        """
        keys = [op.key for op in state_ops if op.type == "delete" and op.version is None]
        if not keys:
            return list(state_ops)
        rows = await self._sql.call(VERSIONS_CALL, query_id, partition_id, keys)
        if any(offered not in {None, version} for _, version, offered in rows):
            raise Unacceptable(_ERROR_BY_REFUSAL["state_changed"])
        version_by_key: dict[str, int] = {key: version for key, version, _ in rows}
        return [
            msgspec.structs.replace(op, version=version_by_key.get(op.key))
            if op.type == "delete" and op.version is None
            else op
            for op in state_ops
        ]

    def _stage_pushes(
        self,
        query_id: UUID,
        body: wire.CycleBody,
        origin: str | None,
        items: Sequence[PushItem],
        producer: str | None,
    ) -> list[StagedPush]:
        return [
            self._stager.stage_push(
                item,
                producer=producer,
                transaction_id=origin
                and str(uuid5(query_id, f"{body.partition_id}\n{position}\n{origin}")),
            )
            for position, item in enumerate(items)
        ]


def _ack_item(body: wire.CycleBody) -> AckItem | None:
    """Return the ack of a cycle as one of the other routes: it is of the cycle's partition."""
    ack = body.ack
    if ack is None:
        return None
    item = AckItem(
        ack.transaction_id or None,
        body.partition_id,
        ack.status,
        ack.error,
        ack.lease_id,
        body.consumer_group,
        ack.message_id,
        ack.id,
        ack.offset,
    )
    if not is_named(item):
        raise Unacceptable("ack.transactionId is required, or else ack.messageId or ack.offset")
    if not ack.lease_id:
        raise Unacceptable("ack.leaseId is required: a cycle is fenced by its lease")
    return item


def _origin(ack: AckItem | None, state_ops: Sequence[wire.StateOperation]) -> str | None:
    """Spell what the results of a cycle follow from; None if that is unknown.

    A batch is known by its lease and its last message: the lease is another one at each delivery,
    and a transaction id may be used again. A flush is known by the rows it deletes, in the versions
    they have.
    """
    if ack is not None:
        _, offset = named_message(ack)
        # Two messages of one lease may share a transaction id; their results are not the same.
        if offset is not None:
            return f"offset\n{ack.lease_id}\n{offset}"
        return f"ack\n{ack.lease_id}\n{ack.transaction_id}"
    deleted = sorted((op.key, op.version or 0) for op in state_ops if op.type == "delete")
    if deleted:
        return "flush\n" + msgspec.json.encode(deleted).decode()
    return "state\n" + msgspec.json.encode(state_ops).decode() if state_ops else None


def _arguments(
    query_id: UUID,
    partition_id: int,
    body: wire.CycleBody,
    state_ops: Sequence[wire.StateOperation],
) -> list[object]:
    is_upsert = [op.type == "upsert" for op in state_ops]
    return [
        query_id,
        partition_id,
        body.release_lease,
        body.release_delay_ms,
        [op.type for op in state_ops],
        [op.key for op in state_ops],
        [bytes(op.value).decode() if is_upsert[at] else None for at, op in enumerate(state_ops)],
        [_window_end(op.value) if is_upsert[at] else None for at, op in enumerate(state_ops)],
        [op.version for op in state_ops],
        STREAM_SHARD_BYTES_MAX,
    ]


def _window_end(value: msgspec.Raw) -> float | None:
    try:
        return _window_decoder.decode(value).window_end
    except msgspec.ValidationError:
        return None  # no window: some other accumulator


def _check_sizes(
    body: wire.CycleBody, state_ops: Sequence[wire.StateOperation], items: Sequence[PushItem]
) -> None:
    if len(state_ops) > STREAM_STATE_OPERATIONS_MAX:
        raise BadRequest(f"more than {STREAM_STATE_OPERATIONS_MAX} state_ops in one cycle")
    if len(items) > PUSH_ITEMS_MAX:
        raise BadRequest(f"more than {PUSH_ITEMS_MAX} push_items in one cycle")
    if not 0 <= body.release_delay_ms <= _DELAY_MS_MAX:
        raise BadRequest(f"release_delay_ms must be between 0 and {_DELAY_MS_MAX}")
    for op in state_ops:
        _check_key(op.key)
        if len(bytes(op.value)) > STREAM_STATE_VALUE_BYTES_MAX:
            raise BadRequest(f"a state value is larger than {STREAM_STATE_VALUE_BYTES_MAX} bytes")


def _check_key(key: str) -> None:
    if len(key) > STREAM_STATE_KEY_CHARS_MAX:
        raise BadRequest(f"a state key is longer than {STREAM_STATE_KEY_CHARS_MAX} characters")
    if "\0" in key:
        raise BadRequest("a state key contains a NUL character")


def _check_kinds(state_ops: Sequence[wire.StateOperation]) -> None:
    for op in state_ops:
        if op.type not in {"upsert", "delete"}:
            raise Unacceptable(f"Unknown state_op type {op.type!r}: use upsert or delete")


def _query_uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise BadRequest("query_id must be a UUID, as registered") from None


def _partition_id(text: str) -> int:
    partition_id = parse_partition_uuid(text)
    if partition_id is None:
        raise BadRequest("partition_id must be the id of a partition, as popped")
    return partition_id


def _refused(body: wire.CycleBody, error: str, queue: str | None = None) -> wire.CycleAnswer:
    return wire.CycleAnswer(
        success=False,
        query_id=body.query_id,
        partition_id=body.partition_id,
        queue_name=queue,
        error=error,
    )


def _answer(
    body: wire.CycleBody, pushes: Sequence[StagedPush], settled: Settled
) -> wire.CycleAnswer:
    queue = settled.row["queue_name"]
    is_replayed = settled.refusal == "replayed"
    if settled.refusal is not None and not is_replayed:
        return _refused(body, _ERROR_BY_REFUSAL[settled.refusal], queue)
    return wire.CycleAnswer(
        success=True,
        query_id=body.query_id,
        partition_id=body.partition_id,
        queue_name=queue,
        state_ops_applied=0 if is_replayed else settled.row["state_count"],
        push_results=_push_results(pushes, settled),
        ack_result=_ack_result(body.ack, settled),
        replayed=is_replayed or msgspec.UNSET,
    )


def _push_results(pushes: Sequence[StagedPush], settled: Settled) -> list[wire.CyclePush]:
    """Return where each item is; for a replayed cycle only that it is a duplicate."""
    results: list[wire.CyclePush] = []
    for index, push in enumerate(pushes):
        found = settled.pushes[index] if settled.pushes else None
        results.append(
            wire.CyclePush(
                index=index,
                transaction_id=push.transaction_id,
                status="queued" if found and not found.is_duplicate else "duplicate",
                message_id=message_id(found.partition.partition_id, found.offset)
                if found
                else None,
                partition_id=found.partition.uuid.decode() if found else None,
                trace_id=push.trace_id,
                queue_name=push.partition_key[0],
            )
        )
    return results


def _ack_result(ack: wire.CycleAck | None, settled: Settled) -> wire.CycleAcked | None:
    if ack is None:
        return None
    acked = settled.acks[0] if settled.acks else None
    return wire.CycleAcked(
        success=True,
        count=ack.count,
        lease_released=bool(acked and acked.lease_released),
        dlq=bool(acked and acked.outcome == "dead_lettered"),
    )


def _info(row: Any) -> wire.QueryInfo:
    return wire.QueryInfo(
        query_id=str(row["id"]),
        name=row["name"],
        source_queue=row["source_queue"],
        sink_queue=row["sink_queue"],
        config_hash=row["config_hash"],
        created_at=wire_time(row["created_at"]).decode(),
        updated_at=wire_time(row["updated_at"]).decode(),
        partitions=row["shard_count"],
        state_rows=row["row_count"],
        state_bytes=row["byte_count"],
    )
