"""The options of the data source `skep` for reading, checked and typed.

An option that is not known is refused by name: a misspelled limit or start would else be ignored
in silence. Names of Spark's Kafka source are accepted where they mean the same.
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    get_type_hints,
)

import msgspec

from skep.model.errors import BadRequest
from skep.model.schema_name import DEFAULT_SCHEMA, InvalidSchemaName, split_schema, with_schema
from skep.settings import InvalidSettings, load_settings
from skep.spark.decode.typed_columns import Columns
from skep.spark.source.positions import EPOCH, InvalidPosition, Position, microseconds_of

Tier = Literal["live", "archive", "all"]
PayloadErrors = Literal["fail", "null", "dead-letter"]
Options = TypeVar("Options")

KEEP_S_MAX: Final = 86_400 * 365

SUBSCRIPTIONS: Final = ("queue", "path", "subscribe", "subscribePattern", "assign")
ALIASES: Final = {
    "maxOffsetsPerTrigger": "maxMessagesPerTrigger",
    "minOffsetsPerTrigger": "minMessagesPerTrigger",
}


class InvalidOption(BadRequest):
    """An option of the data source is wrong."""


class Given(dict[str, str]):
    """The options as they were given, by name."""

    def __init__(self, options: Mapping[str, str], names: Sequence[str]) -> None:
        """Check the names; raise `InvalidOption` if one is unknown, or given under two names."""
        super().__init__()
        known = {name.lower(): name for name in names}
        known |= {alias.lower(): name for alias, name in ALIASES.items() if name in names}
        for name, value in options.items():
            if name.lower() not in known:
                raise InvalidOption(f"unknown option {name!r}{_nearest(name, names)}")
            chosen = known[name.lower()]
            if self.setdefault(chosen, value) != value:
                raise InvalidOption(f"the option {chosen} is given twice, as two names for it")

    def take(self, option: "Option", default: Any = None) -> Any:
        """Return an option as it is read; raise `InvalidOption` if it is not what it should be."""
        name, read, what = option
        if name not in self or read is None:
            return self.get(name, default)
        try:
            return read(self[name].strip())
        except (ValueError, KeyError, OverflowError, InvalidPosition):
            raise InvalidOption(f"the option {name} must be {what}, not {self[name]!r}") from None


class Option(NamedTuple):
    """Says of a field, as part of its annotation, from which option it is taken."""

    name: str
    read: Callable[[str], Any] | None = None
    """None takes it as it is."""
    what: str = ""
    """What it should be."""


def declared_options(kind: type) -> dict[str, Option]:
    """Return the options that fields of a class are taken from, by field."""
    hints = get_type_hints(kind, include_extras=True)
    metadata: dict[str, tuple[Any, ...]] = {
        name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()
    }
    return {name: found[0] for name, found in metadata.items() if found}


def take_options(kind: type[Options], given: Given, **known: Any) -> Options:
    """Return options of a class; of its fields, some are known already."""
    declared = declared_options(kind).items()
    taken = {field: given.take(option) for field, option in declared if option.name in given}
    return kind(**known, **taken)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def one_of(*choices: str) -> tuple[Callable[[str], str], str]:
    """Return how one of several words is read, and what it should be."""
    words = {word: word for word in choices}
    return lambda text: words[text.lower()], f"one of {', '.join(choices)}"


_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

COUNT: Final = (_at_least_one, "a whole number, at least 1")


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _microseconds(text: str) -> int:
    if text.isdigit():
        moment = EPOCH + timedelta(milliseconds=int(text))
    else:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return microseconds_of(moment)


_FLAG: Final = (_flag, "true or false")
_TIME: Final = (_microseconds, "an ISO time or milliseconds since 1970")


def seconds_of(text: str) -> float:
    """Read a length of time such as 500ms, 30s or 15m; raise `ValueError` or `KeyError`."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    seconds = float(digits) * _UNITS[text[len(digits) :].strip() or "s"]
    if not 0 < seconds < 1e9:
        raise ValueError(text)
    return seconds


DURATION: Final = (seconds_of, "a time such as 30s or 15m")


def _bytes(text: str) -> int:
    unit = _SIZES.get(text[-1:].lower())
    return _at_least_one(text[:-1] if unit else text) * (unit or 1)


def _name(text: str) -> str:
    if not 0 < len(text) <= 255:
        raise ValueError(text)
    return text


def _start(text: str) -> Literal["earliest", "latest"] | Position:
    return "earliest" if text.lower() == "earliest" else _end(text)


def _end(text: str) -> Literal["latest"] | Position:
    return "latest" if text.lower() == "latest" else Position.parse(text)


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which queues are read: by names, by a pattern, or single partitions of them."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: Mapping[str, tuple[str, ...]] | None = None
    """By queue, the names of the only partitions to read; None for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Everything a reader can be told."""

    url: str
    subscription: Subscription
    start: Annotated[
        Literal["earliest", "latest"] | Position,
        Option("startingOffsets", _start, "earliest, latest, or a stored position"),
    ] = "earliest"
    since_us: Annotated[int | None, Option("startingTimestamp", *_TIME)] = None
    end: Annotated[
        Literal["latest"] | Position, Option("endingOffsets", _end, "latest, or a stored position")
    ] = "latest"
    until_us: Annotated[int | None, Option("endingTimestamp", *_TIME)] = None
    messages_per_trigger: Annotated[int | None, Option("maxMessagesPerTrigger", *COUNT)] = None
    bytes_per_trigger: Annotated[
        int | None, Option("maxBytesPerTrigger", _bytes, "a size such as 64m")
    ] = None
    messages_to_wait_for: Annotated[int | None, Option("minMessagesPerTrigger", *COUNT)] = None
    trigger_delay_s: Annotated[float, Option("maxTriggerDelay", *DURATION)] = 900.0
    min_partitions: Annotated[int | None, Option("minPartitions", *COUNT)] = None
    messages_per_partition: Annotated[int, Option("maxRecordsPerPartition", *COUNT)] = 500_000
    fail_on_data_loss: Annotated[bool, Option("failOnDataLoss", *_FLAG)] = True
    on_timeline_change: Annotated[
        Literal["fail", "reread"], Option("onTimelineChange", *one_of("fail", "reread"))
    ] = "fail"
    include_expired: Annotated[bool, Option("includeExpired", *_FLAG)] = False
    payload_errors: Annotated[
        PayloadErrors, Option("payloadErrors", *one_of("fail", "null", "dead-letter"))
    ] = "fail"
    consumer_group: Annotated[
        str | None, Option("consumerGroup", _name, "a name of 1 to 255 characters")
    ] = None
    keep_s: Annotated[int, Option("holdSeconds", *COUNT)] = 86_400
    encryption_keys: Annotated[str | None, Option("encryptionKeys")] = None
    encryption_key_file: Annotated[str | None, Option("encryptionKeyFile")] = None
    statement_timeout_s: Annotated[float, Option("statementTimeout", *DURATION)] = 300.0
    tier: Annotated[Tier, Option("tier", *one_of("live", "archive", "all"))] = "live"
    storage: Annotated[str | None, Option("storage")] = None
    """How to reach the files of the archive; None for what the settings say."""
    read_url: str | None = None
    """A standby from which tasks read; None for the primary."""
    read_timeout_s: Annotated[float, Option("readTimeout", *DURATION)] = 10.0
    read_fallback: Annotated[
        Literal["primary", "fail"], Option("readFallback", *one_of("primary", "fail"))
    ] = "primary"

    @property
    def may_reread(self) -> bool:
        """Whether to read again what ids that were given out twice may hide."""
        return self.on_timeline_change == "reread"


READ_OPTIONS: Final = (
    *("url", "readUrl", "databaseSchema", *SUBSCRIPTIONS),
    *(each.name for each in declared_options(ReadOptions).values()),
    *("includeHeaders", "shape", "payload", "payloadSchema"),
)


def read_options(options: Mapping[str, str]) -> ReadOptions:
    """Check the options of a reader and type them; raise `InvalidOption`."""
    given = Given(options, READ_OPTIONS)
    for edge in ("starting", "ending"):
        if f"{edge}Timestamp" in given and f"{edge}Offsets" in given:
            raise InvalidOption(f"give {edge}Offsets or {edge}Timestamp, not both")
    url = database_url(given)
    chosen = take_options(
        ReadOptions,
        given,
        url=url,
        read_url=_standby_url(given, url),
        subscription=_subscription(given),
    )
    least, most = chosen.messages_to_wait_for, chosen.messages_per_trigger
    if least is not None and most is not None and least > most:
        raise InvalidOption("minMessagesPerTrigger is larger than maxMessagesPerTrigger")
    if chosen.keep_s > KEEP_S_MAX:
        raise InvalidOption(f"the option holdSeconds is {chosen.keep_s}; at most {KEEP_S_MAX}")
    return chosen


@dataclass(frozen=True, slots=True)
class Shape:
    """What the rows look like when no schema is given."""

    kind: Literal["skep", "kafka", "typed"] = "skep"
    payload: str = "string"
    """The type of the payload, as Spark's DDL spells it."""
    headers: bool = True
    columns: Columns = ()
    """Those that a typed table has of payloads."""


def shape_options(options: Mapping[str, str]) -> Shape:
    """Return the columns and types of the rows; raise `InvalidOption`."""
    given = Given(options, READ_OPTIONS)
    kind = given.take(Option("shape", *one_of("skep", "kafka", "typed")), "skep")
    headers = given.take(Option("includeHeaders", *_FLAG), kind != "kafka")
    if "payloadSchema" not in given:
        carried = Option("payload", *one_of("string", "binary"))
        return Shape(kind, given.take(carried, "string"), headers)
    if "payload" in given or kind != "skep":
        raise InvalidOption("payloadSchema goes with neither payload nor shape=kafka or typed")
    return Shape(kind, _as_type(given["payloadSchema"]), headers)


def database_url(given: Given) -> str:
    """Return the options `url` and `databaseSchema`, else the settings; raise `InvalidOption`."""
    url, schema = given.get("url"), given.get("databaseSchema")
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
    try:
        return with_schema(_postgres_url("url", url), schema or DEFAULT_SCHEMA)
    except InvalidSchemaName as error:
        raise InvalidOption(f"the option databaseSchema: {error.message}") from None


def _standby_url(given: Given, primary: str) -> str | None:
    if "readUrl" not in given:
        return None
    return with_schema(_postgres_url("readUrl", given["readUrl"]), split_schema(primary)[1].name)


def _postgres_url(option: str, text: str) -> str:
    if not text.startswith(("postgresql://", "postgres://")):
        raise InvalidOption(f"the option {option} must begin with postgresql://")
    return text


def _subscription(given: Given) -> Subscription:
    chosen = [name for name in SUBSCRIPTIONS if name in given]
    if len(chosen) != 1:
        found = f"not both {' and '.join(chosen)}" if chosen else "none is given"
        raise InvalidOption(
            f"say which queues to read by one of queue, subscribe, subscribePattern and assign: "
            f"{found}"
        )
    (name,) = chosen
    text = given[name]
    if name == "subscribePattern":
        return Subscription(pattern=text)
    if name == "assign":
        wanted = Option(name, _assignment, 'JSON such as {"queue": ["partition"]}')
        partitions = given.take(wanted)
        return Subscription(tuple(partitions), partitions=partitions)
    names = [text] if name in ("queue", "path") else [each.strip() for each in text.split(",")]
    if not all(names):
        raise InvalidOption(f"the option {name} names no queue")
    return Subscription(tuple(dict.fromkeys(names)))


def _assignment(text: str) -> dict[str, tuple[str, ...]]:
    partitions = msgspec.json.decode(text, type=dict[str, tuple[str, ...]])
    if not partitions:
        raise ValueError(text)
    return partitions


def _as_type(payload: str) -> str:
    """Turn what may be a list of columns into a type: `a INT, b STRING` is a struct."""
    is_nested = payload.lower().lstrip().startswith(("struct<", "array<", "map<"))
    has_columns = not is_nested and (":" in payload or " " in payload.strip())
    return f"struct<{payload}>" if has_columns else payload


def _nearest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name.lower(), [each.lower() for each in names], 1)
    spelled = {each.lower(): each for each in names}
    return f"; did you mean {spelled[close[0]]}?" if close else ""
