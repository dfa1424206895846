"""Configure the log: text for people, or one JSON object per line.

All code logs by the standard library, under names that start with `skep`, to standard error.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

_PLAIN_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "color_message",  # uvicorn's own message again, with escape codes
}
"""Attributes of every record; all others are `extra` fields."""


def configure_logging(
    *, level: str, style: Literal["text", "json"], worker: int | None = None
) -> None:
    """Send the log of this process to standard error; every line names the worker, if given."""
    handler = logging.StreamHandler(sys.stderr)
    if worker is not None:

        def name_worker(record: logging.LogRecord) -> bool:
            record.worker = worker
            return True

        handler.addFilter(name_worker)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the extra fields of a record."""
    return {name: v for name, v in vars(record).items() if name not in _PLAIN_ATTRIBUTES}


class TextFormatter(logging.Formatter):
    """`10:04:05.123 warning skep.engine call failed op=push`, followed by the stack."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03d %(levelname)s %(name)s %(message)s", "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the standard's name)
        """Append the extra fields to the message."""
        fields = "".join(f" {name}={v!r}" for name, v in extra_fields(record).items())
        return super().formatMessage(record) + fields


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, extra fields, stack."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **extra_fields(record),
        }
        if record.exc_info:
            line["stack"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=repr).decode()
