"""Configure: create queues, change their options, show them.

Decides what a change means: which values are valid, what null and `replace` stand for, and what
this broker cannot offer. Push, pop, ack and retention act by the options.
"""

import json
from collections.abc import Callable
from typing import Any, Final, Literal, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType

from skep.broker.cluster.changes import RULES, ChangeAnnouncer
from skep.db.access.slots import Caller
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.ids import partition_uuid, queue_uuid
from skep.model.names import check_name
from skep.model.queue_options import AckMode, Deferral, Overflow, QueueOptions
from skep.model.schemas import compile_schema

CONFIGURE_CALL: Final = "select * from skep.configure_queue($1, $2, $3, $4)"
SHOW_CALL: Final = "select * from skep.show_queue($1)"

COLUMNS: Final = {
    "leaseTime": "lease_time_s",
    "retryLimit": "retry_limit",
    "retryDelay": "retry_delay_ms",
    "retryDelayMax": "retry_delay_ms_max",
    "maxDeliveries": "max_deliveries",
    "maxSize": "max_size",
    "overflow": "overflow",
    "ttl": "ttl_s",
    "ackMode": "ack_mode",
    "deadLetterQueue": "dead_letter_queue",
    "dlqAfterMaxRetries": "dlq_after_max_retries",
    "priority": "priority",
    "delayedProcessing": "delayed_processing_s",
    "windowBuffer": "window_buffer_s",
    "retentionSeconds": "retention_s",
    "completedRetentionSeconds": "completed_retention_s",
    "retentionEnabled": "retention_enabled",
    "encryptionEnabled": "encryption_enabled",
    "maxWaitTimeSeconds": "max_wait_time_s",
    "dedupWindowSeconds": "dedup_window_s",
    "jsonSchema": "json_schema",
    "archiveAfterSeconds": "archive_after_s",
    "archiveBeforeDelete": "archive_before_delete",
    "deferral": "deferral",
}
"""Options of the wire, and the column each is stored in."""

_DEFAULTS: Final[dict[str, Any]] = msgspec.to_builtins(QueueOptions())
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "ackMode": get_args(AckMode),
    "overflow": get_args(Overflow),
    "deferral": get_args(Deferral),
}
_INTEGER_MAX: Final = 2**31 - 1


class Configured(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The queue as it is now."""

    configured: Literal[True] = True
    queue_id: str
    partition_id: str | None
    """Of the partition `Default`, which a queue created by a push may lack."""
    queue: str
    namespace: str
    task: str
    options: QueueOptions
    ignored_options: list[str] | UnsetType = UNSET
    """Options of the request that Skep does not know, if any."""


class Configure:
    """Change and show the configuration of queues."""

    def __init__(
        self,
        caller: Caller,
        *,
        can_encrypt: Callable[[], bool] = lambda: False,
        changes: ChangeAnnouncer | None = None,
    ) -> None:
        self._caller: Final = caller
        self._changes: Final = changes
        self._can_encrypt: Final = can_encrypt

    async def configure_queue(
        self,
        queue: str,
        *,
        namespace: str | None,
        task: str | None,
        options: dict[str, Any],
        replace: bool = False,
    ) -> Configured:
        """Create or change a queue and return its full configuration.

        Args:
            queue: Its name.
            namespace: None leaves it as it is.
            task: None leaves it as it is.
            options: Those to change, as on the wire; None as a value restores the default. Those
                that are not known change nothing.
            replace: Options not given go back to their defaults as well.

        Raises:
            BadRequest: A name or a value is not acceptable.
            Refused: Encryption is asked for and this broker has no key.
        """
        check_name("queue", queue)
        for kind, name in (("namespace", namespace), ("task", task)):
            if name is not None:
                check_name(kind, name)
        given = {**dict.fromkeys(COLUMNS), **options} if replace else options
        columns = {
            COLUMNS[name]: _checked_option(name, value)
            for name, value in given.items()
            if name in COLUMNS
        }
        if columns.get("encryption_enabled") and not self._can_encrypt():
            # Storing in clear what was asked to be encrypted would be worse than refusing.
            raise Refused("this broker has no key and cannot encrypt: leave out encryptionEnabled")
        if replace:
            namespace, task = namespace or "", task or ""
        rows = await self._caller.call(CONFIGURE_CALL, queue, namespace, task, json.dumps(columns))
        if self._changes is not None:
            self._changes.announce(RULES, json.loads(rows[0]["queue"])["id"])
        return _configured(rows[0], unknown=sorted(options.keys() - COLUMNS.keys()))

    async def show(self, queue: str) -> Configured:
        """Return the full configuration of a queue.

        Raises:
            NotFound: There is no such queue.
        """
        rows = await self._caller.call(SHOW_CALL, queue)
        if not rows:
            raise NotFound("Queue not found")
        return _configured(rows[0])


def _configured(row: Any, *, unknown: list[str] | None = None) -> Configured:
    stored, default_partition_id = json.loads(row["queue"]), row["default_partition_id"]
    return Configured(
        queue_id=queue_uuid(stored["id"]),
        partition_id=None if default_partition_id is None else partition_uuid(default_partition_id),
        queue=stored["name"],
        namespace=stored["namespace"],
        task=stored["task"],
        options=stored_options(stored),
        ignored_options=unknown or UNSET,
    )


def stored_options(stored: dict[str, Any]) -> QueueOptions:
    """Read the options out of a row of `skep.queue`, given as JSON."""
    options = {name: stored[column] for name, column in COLUMNS.items()}
    return msgspec.convert(options, QueueOptions)


def _checked_option(name: str, value: Any) -> object:
    """Return the value to store.

    Raises:
        BadRequest: It is of the wrong type or out of bounds.
    """
    default = _DEFAULTS[name]
    if value is None:
        return default
    if name == "jsonSchema":
        return _checked_schema(value)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise BadRequest(
                f"option {name} must be one of {', '.join(_CHOICES[name])}, not {value!r}"
            )
        return value
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadRequest(f"option {name} must be true or false")
        return value
    return _checked_number(name, value)


def _checked_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"option {name} must be a whole number")
    if name != "priority" and not 0 <= value <= _INTEGER_MAX:
        raise BadRequest(f"option {name} must be between 0 and {_INTEGER_MAX}, not {value}")
    return max(-_INTEGER_MAX, min(value, _INTEGER_MAX))


def _checked_schema(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadRequest("option jsonSchema must be an object or null")
    schema = cast("dict[str, Any]", value)  # as every object that came out of JSON
    compile_schema(schema)
    return schema
