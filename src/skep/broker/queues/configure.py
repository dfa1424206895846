"""Configure: create queues, change their options, show them.

Decides what a change means: which values are valid, what null and `replace` stand for, and what
this broker cannot offer. Push, pop, ack and retention act by the options.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, cast, get_args

import msgspec
from msgspec import UNSET, UnsetType

from skep.broker.cluster.changes import RULES, ChangeAnnouncer
from skep.db.access.functions import Functions
from skep.model.errors import BadRequest, NotFound, Refused
from skep.model.ids import partition_uuid, queue_uuid
from skep.model.names import check_name, check_optional_name
from skep.model.queue_options import AckMode, Deferral, LakeTable, Overflow, QueueOptions
from skep.model.schemas import compile_schema

_COLUMNS_BY_OPTION: Final = {
    "lease_time": "lease_time_s",
    "retry_delay": "retry_delay_ms",
    "retry_delay_max": "retry_delay_ms_max",
    "ttl": "ttl_s",
    "delayed_processing": "delayed_processing_s",
    "window_buffer": "window_buffer_s",
    "retention_seconds": "retention_s",
    "completed_retention_seconds": "completed_retention_s",
    "max_wait_time_seconds": "max_wait_time_s",
    "dedup_window_seconds": "dedup_window_s",
    "archive_after_seconds": "archive_after_s",
    "strict": "is_strict",
}
COLUMNS: Final = {
    field.encode_name: _COLUMNS_BY_OPTION.get(field.name, field.name)
    for field in msgspec.structs.fields(QueueOptions)
}
"""Options of the wire, and the column each is stored in."""

_DEFAULTS: Final[dict[str, Any]] = msgspec.to_builtins(QueueOptions())
_CHOICES: Final[dict[str, tuple[str, ...]]] = {
    "ackMode": get_args(AckMode),
    "overflow": get_args(Overflow),
    "deferral": get_args(Deferral),
    "lakeTable": get_args(LakeTable),
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


@dataclass(frozen=True, slots=True, eq=False)
class Configure:
    """Change and show the configuration of queues."""

    sql: Functions
    can_encrypt: Callable[[], bool] = lambda: False
    changes: ChangeAnnouncer | None = None

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

        None leaves the namespace or the task as it is, and as the value of an option restores its
        default; unknown options change nothing. With `replace`, what is not given goes back to its
        default as well.
        """
        check_name("queue", queue)
        check_optional_name("namespace", namespace)
        check_optional_name("task", task)
        given = {**dict.fromkeys(COLUMNS), **options} if replace else options
        columns = {
            COLUMNS[name]: _checked_option(name, value)
            for name, value in given.items()
            if name in COLUMNS
        }
        if columns.get("encryption_enabled") and not self.can_encrypt():
            # Storing in clear what was asked to be encrypted would be worse than refusing.
            raise Refused("this broker has no key and cannot encrypt: leave out encryptionEnabled")
        if replace:
            namespace, task = namespace or "", task or ""
        row = await self.sql.row("configure_queue", queue, namespace, task, json.dumps(columns))
        if self.changes is not None:
            self.changes.announce(RULES, json.loads(row["queue"])["id"])
        return _configured(row, unknown=sorted(options.keys() - COLUMNS.keys()))

    async def show(self, queue: str) -> Configured:
        """Return the full configuration of a queue."""
        return _configured(
            await self.sql.row("show_queue", queue, missing=NotFound("Queue not found"))
        )


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
    """Return the value to store, if it is of the right type and within bounds."""
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
