"""The options of the data source `skep` for reading, checked and typed.

An option that is not known is refused by name: a misspelled limit or start would else be ignored
in silence. Names of Spark's Kafka source are accepted where they mean the same.
"""

import difflib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Literal, TypeVar

from skep.model.errors import BadRequest
from skep.model.schema_name import DEFAULT_SCHEMA, InvalidSchemaName, with_schema
from skep.settings import InvalidSettings, load_settings
from skep.spark.source.positions import EPOCH, InvalidPosition, Position, microseconds_of

Start = Literal["earliest", "latest"]
Tier = Literal["live", "archive", "all"]
Value = TypeVar("Value")

MESSAGES_PER_PARTITION: Final = 500_000
"""A task reads at most so many messages unless told otherwise."""
KEEP_S_DEFAULT: Final = 86_400
KEEP_S_MAX: Final = 86_400 * 365

SUBSCRIPTIONS: Final = ("queue", "path", "subscribe", "subscribePattern", "assign")
ALIASES: Final = {
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "minMessagesPerTrigger",
}
READ_OPTIONS: Final = (
    "url",
    "databaseSchema",
    *SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxMessagesPerTrigger",
    "maxBytesPerTrigger",
    "minMessagesPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeExpired",
    "shape",
    "payload",
    "payloadSchema",
    "payloadErrors",
    "consumerGroup",
    "holdSeconds",
    "encryptionKeys",
    "encryptionKeyFile",
    "statementTimeout",
    "tier",
    "storage",
)


class InvalidOption(BadRequest):
    """An option of the data source is wrong."""

    code: ClassVar[str] = "invalid_option"


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which queues are read: by names, by a pattern, or single partitions of them."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[str, ...]] | None = None
    """By queue, the names of the only partitions to read; None for all."""

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern else ", ".join(self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Everything a reader can be told."""

    url: str
    subscription: Subscription
    start: Start | Position = "earliest"
    since_us: int | None = None
    end: Literal["latest"] | Position = "latest"
    until_us: int | None = None
    messages_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    messages_to_wait_for: int | None = None
    trigger_delay_s: float = 900.0
    min_partitions: int | None = None
    messages_per_partition: int = MESSAGES_PER_PARTITION
    fail_on_data_loss: bool = True
    include_expired: bool = False
    payload_errors: Literal["fail", "null"] = "fail"
    consumer_group: str | None = None
    keep_s: int = KEEP_S_DEFAULT
    encryption_keys: str | None = None
    encryption_key_file: str | None = None
    statement_timeout_s: float = 300.0
    tier: Tier = "live"
    storage: str | None = None
    """How to reach the files of the archive; None for what the settings say."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows look like when no schema is given."""

    kind: Literal["skep", "kafka"] = "skep"
    payload: str = "string"
    """The type of the payload, as Spark's DDL spells it."""
    headers: bool = True


class Given:
    """The options as they were given, taken by name."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str] = READ_OPTIONS) -> None:
        """Check the names; raise `InvalidOption` if one is unknown, or given under two names."""
        known = {name.lower(): name for name in names}
        known |= {alias.lower(): name for alias, name in ALIASES.items() if name in names}
        self._values: Final[dict[str, str]] = {}
        for name, value in options.items():
            if name.lower() not in known:
                raise InvalidOption(f"unknown option {name!r}{_nearest(name, names)}")
            chosen = known[name.lower()]
            if self._values.setdefault(chosen, value) != value:
                raise InvalidOption(f"the option {chosen} is given twice, as two names for it")

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def text(self, name: str) -> str | None:
        """Return an option as it is."""
        return self._values.get(name)

    def take(self, name: str, default: Value, read: Callable[[str], Value], what: str) -> Value:
        """Return an option as `read` parses it; raise `InvalidOption` with `what` it should be."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            return read(text.strip())
        except (ValueError, KeyError, OverflowError):
            raise InvalidOption(f"the option {name} must be {what}, not {text!r}") from None

    def count(self, name: str, default: int | None = None) -> int | None:
        """Return a number of things, at least one."""
        return self.take(name, default, _at_least_one, "a whole number, at least 1")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a choice."""
        choices = {"true": True, "false": False}
        return self.take(name, default, lambda text: choices[text.lower()], "true or false")

    def choice(self, name: str, *choices: str) -> Any:
        """Return one of several words; the first is the default."""
        words = {word: word for word in choices}
        return self.take(
            name, choices[0], lambda text: words[text.lower()], f"one of {', '.join(choices)}"
        )


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a reader and type them; raise `InvalidOption`."""
    given = Given(options)
    messages_to_wait_for = given.count("minMessagesPerTrigger")
    messages_per_trigger = given.count("maxMessagesPerTrigger")
    if (messages_to_wait_for or 0) > (messages_per_trigger or messages_to_wait_for or 0):
        raise InvalidOption("minMessagesPerTrigger is larger than maxMessagesPerTrigger")
    keep_s = given.count("holdSeconds", KEEP_S_DEFAULT) or KEEP_S_DEFAULT
    if keep_s > KEEP_S_MAX:
        raise InvalidOption(f"the option holdSeconds is {keep_s}; at most {KEEP_S_MAX}")
    return ReadOptions(
        url=database_url(given),
        subscription=_subscription(given),
        start=_start(given),
        since_us=given.take("startingTimestamp", None, _microseconds, _A_TIME),
        end=_end(given),
        until_us=given.take("endingTimestamp", None, _microseconds, _A_TIME),
        messages_per_trigger=messages_per_trigger,
        bytes_per_trigger=given.take("maxBytesPerTrigger", None, _bytes, "a size such as 64m"),
        messages_to_wait_for=messages_to_wait_for,
        trigger_delay_s=given.take(
            "maxTriggerDelay", 900.0, seconds_of, "a time such as 30s or 15m"
        ),
        min_partitions=given.count("minPartitions"),
        messages_per_partition=given.count("maxRecordsPerPartition") or MESSAGES_PER_PARTITION,
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_expired=given.flag("includeExpired", default=False),
        payload_errors=given.choice("payloadErrors", "fail", "null"),
        consumer_group=given.take("consumerGroup", None, _name, "a name of 1 to 255 characters"),
        keep_s=keep_s,
        encryption_keys=given.text("encryptionKeys"),
        encryption_key_file=given.text("encryptionKeyFile"),
        statement_timeout_s=given.take(
            "statementTimeout", 300.0, seconds_of, "a time such as 300s"
        ),
        tier=given.choice("tier", "live", "archive", "all"),
        storage=given.text("storage"),
    )


def shape_options(options: Mapping[str, str]) -> Shape:
    """Return the columns and types of the rows; raise `InvalidOption`."""
    given = Given(options)
    kind = given.choice("shape", "skep", "kafka")
    if "payloadSchema" in given:
        if "payload" in given or kind == "kafka":
            raise InvalidOption("payloadSchema goes with neither payload nor shape=kafka")
        payload = given.text("payloadSchema") or ""
        return Shape(kind, _as_type(payload), given.flag("includeHeaders", default=True))
    return Shape(
        kind,
        given.choice("payload", "string", "binary"),
        given.flag("includeHeaders", default=kind == "skep"),
    )


_A_TIME: Final = "an ISO time or milliseconds since 1970"
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def database_url(given: Given) -> str:
    """Return the options `url` and `databaseSchema`, else the settings; raise `InvalidOption`."""
    url, schema = given.text("url"), given.text("databaseSchema")
    if url is None:
        try:
            settings = load_settings().settings
        except InvalidSettings as error:
            raise InvalidOption(f"there is no option url, and {error.message}") from None
        url, schema = settings.database_url, schema or settings.database_schema
    if url is None:
        raise InvalidOption(
            "there is no database: give the option url, "
            "postgresql://user:password@host:port/database, or set SKEP_DATABASE_URL"
        )
    if not url.startswith(("postgresql://", "postgres://")):
        raise InvalidOption("the option url must begin with postgresql://")
    try:
        return with_schema(url, schema or DEFAULT_SCHEMA)
    except InvalidSchemaName as error:
        raise InvalidOption(f"the option databaseSchema: {error.message}") from None


def _subscription(given: Given) -> Subscription:
    chosen = [name for name in SUBSCRIPTIONS if name in given]
    if len(chosen) != 1:
        found = f"not both {' and '.join(chosen)}" if chosen else "none is given"
        raise InvalidOption(
            f"say which queues to read by one of queue, subscribe, subscribePattern and assign: "
            f"{found}"
        )
    (name,) = chosen
    text = given.text(name) or ""
    if name == "subscribePattern":
        return Subscription(pattern=text)
    if name == "assign":
        partitions = given.take(name, {}, _assignment, 'JSON such as {"queue": ["partition"]}')
        return Subscription(tuple(partitions), partitions=partitions)
    names = [text] if name in ("queue", "path") else [each.strip() for each in text.split(",")]
    if not all(names):
        raise InvalidOption(f"the option {name} names no queue")
    return Subscription(tuple(dict.fromkeys(names)))


def _start(given: Given) -> Start | Position:
    if "startingTimestamp" in given and "startingOffsets" in given:
        raise InvalidOption("give startingOffsets or startingTimestamp, not both")
    return given.take("startingOffsets", "earliest", _start_or_position, _A_START)


def _end(given: Given) -> Literal["latest"] | Position:
    if "endingTimestamp" in given and "endingOffsets" in given:
        raise InvalidOption("give endingOffsets or endingTimestamp, not both")
    return given.take("endingOffsets", "latest", _end_or_position, "latest, or a stored position")


_A_START: Final = "earliest, latest, or a stored position"


def _start_or_position(text: str) -> Start | Position:
    if text.lower() == "earliest":
        return "earliest"
    return _end_or_position(text)


def _end_or_position(text: str) -> Literal["latest"] | Position:
    if text.lower() == "latest":
        return "latest"
    try:
        return Position.parse(text)
    except InvalidPosition as error:
        raise ValueError(error.message) from error


def _assignment(text: str) -> dict[str, tuple[str, ...]]:
    read: Any = json.loads(text)
    if not isinstance(read, dict) or not read:
        raise ValueError(text)
    partitions: dict[str, tuple[str, ...]] = {}
    for queue, names in read.items():  # pyright: ignore[reportUnknownVariableType] (any JSON)
        if not isinstance(names, list) or not all(isinstance(each, str) for each in names):  # pyright: ignore[reportUnknownVariableType]
            raise ValueError(text)
        partitions[str(queue)] = tuple(names)  # pyright: ignore[reportUnknownArgumentType]
    return partitions


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _microseconds(text: str) -> int:
    if text.isdigit():
        moment = EPOCH + timedelta(milliseconds=int(text))
    else:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return microseconds_of(moment)


def seconds_of(text: str) -> float:
    """Read a length of time such as 500ms, 30s or 15m; raise `ValueError` or `KeyError`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    seconds = float(digits) * _UNITS[text[len(digits) :].strip() or "s"]
    if not 0 < seconds < 1e9:
        raise ValueError(text)
    return seconds


def _bytes(text: str) -> int:
    unit = _SIZES.get(text[-1:].lower())
    return _at_least_one(text[:-1] if unit else text) * (unit or 1)


def _name(text: str) -> str:
    if not 0 < len(text) <= 255:
        raise ValueError(text)
    return text


def _as_type(payload: str) -> str:
    """Turn what may be a list of columns into a type: `a INT, b STRING` is a struct."""
    is_nested = payload.lower().lstrip().startswith(("struct<", "array<", "map<"))
    has_columns = not is_nested and (":" in payload or " " in payload.strip())
    return f"struct<{payload}>" if has_columns else payload


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1)
    spelled = {each.lower(): each for each in names}
    return f"; did you mean {spelled[close[0]]}?" if close else ""
