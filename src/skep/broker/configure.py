"""Configure: create queues and change their options."""

import json
from typing import Any, Final

from skep.broker.names import check_name
from skep.db.slots import Caller
from skep.model.errors import BadRequest, Refused
from skep.model.ids import partition_uuid

CONFIGURE_CALL: Final = "select * from skep.configure_queue($1, $2, $3, $4)"

OPTIONS: Final[dict[str, tuple[str, int | bool]]] = {
    "leaseTime": ("lease_time_s", 300),
    "retryLimit": ("retry_limit", 3),
    "retryDelay": ("retry_delay_ms", 1000),
    "maxSize": ("max_size", 0),
    "ttl": ("ttl_s", 3600),
    "deadLetterQueue": ("dead_letter_queue", False),
    "dlqAfterMaxRetries": ("dlq_after_max_retries", False),
    "priority": ("priority", 0),
    "delayedProcessing": ("delayed_processing_s", 0),
    "windowBuffer": ("window_buffer_s", 0),
    "retentionSeconds": ("retention_s", 0),
    "completedRetentionSeconds": ("completed_retention_s", 0),
    "retentionEnabled": ("retention_enabled", False),
    "encryptionEnabled": ("encryption_enabled", False),
    "maxWaitTimeSeconds": ("max_wait_time_s", 0),
    "dedupWindowSeconds": ("dedup_window_s", 3600),
}
"""Options of the wire: their column and their default."""

_INTEGER_MAX: Final = 2**31 - 1


class Configure:
    """Change the configuration of queues."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def configure_queue(
        self,
        queue: str,
        *,
        namespace: str | None,
        task: str | None,
        options: dict[str, Any],
        replace: bool = False,
    ) -> dict[str, Any]:
        """Create or change a queue and return its full configuration.

        Args:
            queue: Its name.
            namespace: None leaves it as it is.
            task: None leaves it as it is.
            options: Those to change; None as a value restores the default.
            replace: Options not given go back to their defaults as well.

        Raises:
            BadRequest: A name or a value is not acceptable.
            Refused: Encryption is asked for.
        """
        check_name("queue", queue)
        for kind, name in (("namespace", namespace), ("task", task)):
            if name is not None:
                check_name(kind, name)
        given = {**dict.fromkeys(OPTIONS), **options} if replace else options
        columns = {
            OPTIONS[name][0]: _checked_option(name, value)
            for name, value in given.items()
            if name in OPTIONS
        }
        if columns.get("encryption_enabled"):
            # Storing in clear what was asked to be encrypted would be worse than refusing.
            raise Refused("this version cannot encrypt yet: configure without encryptionEnabled")
        if replace:
            namespace, task = namespace or "", task or ""
        rows = await self._caller.call(CONFIGURE_CALL, queue, namespace, task, json.dumps(columns))
        stored = json.loads(rows[0][0])
        return {
            "configured": True,
            "queueId": _queue_uuid(stored["id"]),
            "partitionId": partition_uuid(rows[0][1]),
            "queue": stored["name"],
            "namespace": stored["namespace"],
            "task": stored["task"],
            "options": {name: stored[column] for name, (column, _) in OPTIONS.items()},
        }


def _checked_option(name: str, value: Any) -> int | bool:
    default = OPTIONS[name][1]
    if value is None:
        return default
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise BadRequest(f"option {name} must be true or false")
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"option {name} must be a whole number")
    if name != "priority" and not 0 <= value <= _INTEGER_MAX:
        raise BadRequest(f"option {name} must be between 0 and {_INTEGER_MAX}")
    return max(-_INTEGER_MAX, min(value, _INTEGER_MAX))


def _queue_uuid(queue_id: int) -> str:
    """Spell a queue id as a UUID (version 8), apart from those of partitions by its first bits."""
    return f"ffffffff-ffff-8fff-8000-{queue_id:012x}"
