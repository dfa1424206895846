"""What a pipeline is: sources, what is computed, windows, sinks and when.

The same values whether they were written in Python or read from YAML
(`skep.spark.pipelines.files`). They are checked here as far as that is possible without Spark and
without a database. Names and expressions inside of SQL are left to Spark, which knows better.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

import msgspec

from skep.model.errors import BadRequest
from skep.spark.pipelines.code import described_code
from skep.spark.sink.options import WRITE_OPTIONS
from skep.spark.source.options import READ_OPTIONS, SUBSCRIPTIONS, Given, InvalidOption, seconds_of

NAME_CHARS_MAX: Final = 100
"""Leaves room for the names of readers, which contain it."""

_OWN_READ_OPTIONS: Final = (
    "url",
    "databaseSchema",
    *SUBSCRIPTIONS,
    "consumerGroup",
    "payload",
    "payloadSchema",
)
_OWN_WRITE_OPTIONS: Final = (
    "url",
    "databaseSchema",
    "queue",
    "path",
    "txnAppId",
    "txnVersion",
    "checkpointLocation",
)
_NAME: Final = re.compile(r"\w{1,50}", re.ASCII)
_NAME_RULE: Final = "write 1 to 50 letters, digits and underscores"
_TABLE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_SECRET: Final = re.compile("key|secret|password|token|credential|storage", re.IGNORECASE)
_SQL_SPACE: Final = re.compile(
    r"""(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)|(?:\s|--[^\n]*|/\*(?!\+).*?\*/)+""",
    re.DOTALL,
)
"""Blanks and comments of SQL, and the texts in quotes, in which they count."""
_EMPTY: Final[dict[str, Any]] = {}

OptionValue: TypeAlias = str | bool | int | float
Row: TypeAlias = dict[str, Any]
Transform: TypeAlias = Callable[..., Any]
"""Takes a DataFrame for each source, by name, and returns one."""


class InvalidPipeline(BadRequest):
    """A pipeline is not defined as it should be."""

    def __init__(self, message: str | None = None, *, path: tuple[str, ...] = ()) -> None:
        """Take what is wrong and where in the definition."""
        super().__init__(f"{'.'.join(path)}: {message}" if path else message)
        self.problem: Final = message or self.message
        self.path: Final = path


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a definition; what it does not know is a mistake."""


class Source(_Part, frozen=True):
    """Queues to read, and what time it is in their messages."""

    queue: str | list[str] | None = None
    pattern: str | None = None
    """A regular expression of names, instead of `queue`."""
    schema: str | None = None
    """Of the payload, as Spark's DDL spells it; without it the payload is a string."""
    event_time: str = "created_at"
    """An SQL expression: when it happened."""
    watermark: str | None = None
    """How late a message may be, such as `10s`. Windows need it."""
    options: dict[str, OptionValue] = _EMPTY


class Window(_Part, frozen=True):
    """Groups of messages by time and key."""

    kind: Literal["tumbling", "sliding", "session"]
    size: str | None = None
    slide: str | None = None
    gap: str | None = None
    by: list[str] = msgspec.field(default_factory=lambda: ["partition"])
    """SQL expressions; the key within a window."""
    aggregate: dict[str, str] = msgspec.field(default_factory=lambda: {"count": "count(*)"})
    """SQL expressions by the names of their columns."""


class Sink(_Part, frozen=True):
    """Where results go: a queue, a table in the lake, or both."""

    queue: str | None = None
    partition: str | None = None
    """An SQL expression; without it the column `partition` if there is one."""
    options: dict[str, OptionValue] = _EMPTY
    table: str | None = None
    """The name of an Iceberg table in the catalog of the archive."""
    partition_by: list[str] = msgspec.field(default_factory=list[str])


class Every(_Part, frozen=True):
    """A micro-batch so often, or as soon as the one before is done."""

    every: str = "1s"


class Expectation(_Part, frozen=True):
    """What results should be like."""

    check: str
    """An SQL expression over the columns of the results; a row meets it if it is true."""
    otherwise: Literal["warn", "drop", "fail"] = "warn"
    """What happens to a row that does not meet it: only counted, left out, or the end of the run,
    before anything of its micro-batch is written."""


class Output(_Part, frozen=True):
    """What to compute of the sources, and where it goes."""

    sink: Sink
    sql: str | None = None
    function: Any = None
    """A function, or where to find one: `module:name`, `file.py:name`."""
    window: Window | None = None
    expect: dict[str, Expectation] = msgspec.field(default_factory=dict[str, Expectation])
    """By name."""


class Case(_Part, frozen=True):
    """A test: the results expected of given messages."""

    given: dict[str, list[Row]]
    """Messages by source, with the columns of the data source."""
    expect: list[Row] | dict[str, list[Row]]
    """Rows; by output if there are several."""

    @property
    def expected(self) -> dict[str, list[Row]]:
        """Rows by output."""
        return {"": self.expect} if isinstance(self.expect, list) else self.expect


class Pipeline(_Part, frozen=True):
    """What to compute of which queues, and where to put it."""

    name: str
    sources: dict[str, Source]
    sink: Sink | None = None
    description: str = ""
    sql: str | None = None
    function: Any = None
    """As of an output."""
    window: Window | None = None
    expect: dict[str, Expectation] = msgspec.field(default_factory=dict[str, Expectation])
    outputs: dict[str, Output] = msgspec.field(default_factory=dict[str, Output])
    """Instead of the one that `sink`, `sql`, `function`, `window` and `expect` describe."""
    trigger: Every | Literal["availableNow", "once"] = msgspec.field(default_factory=Every)
    tests: dict[str, Case] = msgspec.field(default_factory=dict[str, Case])
    """By what they show."""
    checkpoint: str | None = None
    spark: dict[str, OptionValue] = _EMPTY
    """Settings of Spark's."""

    @property
    def all_outputs(self) -> dict[str, Output]:
        """The outputs by name; the only one has none."""
        if self.outputs or self.sink is None:
            return self.outputs
        names = ("sink", "sql", "function", "window", "expect")
        return {"": Output(**{name: getattr(self, name) for name in names})}


def check_pipeline(pipeline: Pipeline) -> None:
    """Raise `InvalidPipeline`, with the place, if something is missing or contradicts itself."""
    if not 0 < len(pipeline.name) <= NAME_CHARS_MAX or "\0" in pipeline.name:
        raise InvalidPipeline(f"must have 1 to {NAME_CHARS_MAX} characters", path=("name",))
    if not pipeline.sources:
        raise InvalidPipeline("name at least one source", path=("sources",))
    for name, source in pipeline.sources.items():
        _check_source(name, source)
    for name in ("sink", "sql", "function", "window", "expect"):
        if pipeline.outputs and getattr(pipeline, name):
            raise InvalidPipeline("with outputs it belongs to one of them", path=(name,))
    if not pipeline.all_outputs:
        raise InvalidPipeline("say where results go, by sink or by outputs")
    tables: dict[str, str] = {}
    for name, output in pipeline.all_outputs.items():
        path = ("outputs", name) if name else ()
        if name and not _NAME.fullmatch(name):
            raise InvalidPipeline(_NAME_RULE, path=path)
        _check_output(output, pipeline.sources, path)
        table = output.sink.table
        if table is not None and tables.setdefault(table, name) != name:
            raise InvalidPipeline(
                f"table {table} is that of output {tables[table]}, and a table is written by one",
                path=(*path, "sink", "table"),
            )
    for name, case in pipeline.tests.items():
        path = ("tests", name)
        _check_names(case.given, pipeline.sources, "source", (*path, "given"))
        _check_names(case.expected, pipeline.all_outputs, "output", (*path, "expect"))
    if isinstance(pipeline.trigger, Every):
        duration(pipeline.trigger.every, ("trigger", "every"))


def _check_names(
    given: Mapping[str, Any], known: Mapping[str, Any], kind: str, path: tuple[str, ...]
) -> None:
    for name in given:
        if name not in known:
            names = ", ".join(each for each in known if each) or "a list of rows"
            raise InvalidPipeline(
                f"there is no {kind} {name or 'without a name'}; write {names}", path=(*path, name)
            )


def _check_output(output: Output, sources: Mapping[str, Source], path: tuple[str, ...]) -> None:
    if output.sql is not None and output.function is not None:
        raise InvalidPipeline("give sql or function, not both", path=(*path, "function"))
    if output.sql is None and output.function is None and len(sources) > 1:
        raise InvalidPipeline(
            "with several sources say by sql or function how they come together",
            path=path or ("sources",),
        )
    if output.window is not None:
        _check_window(output.window, path)
        if not any(source.watermark for source in sources.values()):
            raise InvalidPipeline(
                "a window closes when the watermark has passed it: give the source a watermark, "
                "such as 10s",
                path=(*path, "window"),
            )
    _check_sink(output.sink, (*path, "sink"))
    for name in output.expect:
        if not _NAME.fullmatch(name):
            raise InvalidPipeline(_NAME_RULE, path=(*path, "expect", name))


def _check_source(name: str, source: Source) -> None:
    path = ("sources", name)
    if not name.isidentifier():
        raise InvalidPipeline(
            "the name of a source is used in SQL: letters, digits and underscores only", path=path
        )
    if (source.queue is None) == (source.pattern is None):
        raise InvalidPipeline("say which queues to read, by queue or by pattern", path=path)
    names = source.queue if isinstance(source.queue, list) else []
    if source.queue == [] or any("," in each or each != each.strip() for each in names):
        raise InvalidPipeline(
            "a list names queues without commas or blanks around them; use pattern for others",
            path=(*path, "queue"),
        )
    if source.watermark is not None:
        duration(source.watermark, (*path, "watermark"))
    _check_options(source.options, READ_OPTIONS, _OWN_READ_OPTIONS, (*path, "options"))


def _check_window(window: Window, within: tuple[str, ...]) -> None:
    wanted = {"tumbling": ("size",), "sliding": ("size", "slide"), "session": ("gap",)}[window.kind]
    for name in ("size", "slide", "gap"):
        text: str | None = getattr(window, name)
        path = (*within, "window", name)
        if text is None and name in wanted:
            raise InvalidPipeline(f"a {window.kind} window needs it, such as 30s", path=path)
        if text is not None and name not in wanted:
            raise InvalidPipeline(f"a {window.kind} window has none", path=path)
        if text is not None:
            duration(text, path)
    if window.kind == "sliding" and (duration(window.slide or "") > duration(window.size or "")):
        raise InvalidPipeline(
            "larger than size: messages would be lost", path=(*within, "window", "slide")
        )
    if window.kind == "session" and not window.by:
        raise InvalidPipeline(
            "a session window needs a key, such as partition", path=(*within, "window", "by")
        )
    if not window.aggregate:
        raise InvalidPipeline("name at least one column", path=(*within, "window", "aggregate"))


def _check_sink(sink: Sink, path: tuple[str, ...]) -> None:
    if sink.queue is None and sink.table is None:
        raise InvalidPipeline("say where results go, by queue or by table", path=path)
    if sink.queue is None and (sink.partition is not None or sink.options):
        raise InvalidPipeline("partition and options are of a queue", path=path)
    if sink.table is not None and not _TABLE.fullmatch(sink.table):
        raise InvalidPipeline(
            f"{sink.table!r} is no name of a table: 1 to 100 letters, digits, _ and -. It is a "
            "table of the lake, not a directory; its files lie in the warehouse",
            path=(*path, "table"),
        )
    if sink.table is None and sink.partition_by:
        raise InvalidPipeline("is of a table", path=(*path, "partitionBy"))
    _check_options(sink.options, WRITE_OPTIONS, _OWN_WRITE_OPTIONS, (*path, "options"))


def _check_options(
    options: Mapping[str, OptionValue],
    known: tuple[str, ...],
    own: tuple[str, ...],
    path: tuple[str, ...],
) -> None:
    """Refuse options that do not exist, and those that the definition says in other words."""
    try:
        Given(spelled_options(options), known)
    except InvalidOption as error:
        raise InvalidPipeline(error.message, path=path) from None
    taken = {name.lower() for name in own}
    for name in options:
        if name.lower() in taken:
            raise InvalidPipeline(
                f"{name} is not for pipelines: they set it themselves", path=(*path, name)
            )


def duration(text: str, path: tuple[str, ...] = ()) -> float:
    """Read a length of time in seconds; raise `InvalidPipeline` if it is none."""
    try:
        return seconds_of(text.strip())
    except (ValueError, KeyError):
        raise InvalidPipeline(
            f"{text!r} is no length of time; write 500ms, 30s, 15m, 2h or 1d", path=path
        ) from None


def spelled_options(options: Mapping[str, OptionValue]) -> dict[str, str]:
    """Spell the values of options as Spark takes them."""
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
    }


def spelled_definition(pipeline: Pipeline) -> bytes:
    """Spell a definition as JSON, for the record that many may see: without secrets."""
    replaced = msgspec.structs.replace
    shown = replaced(
        pipeline,
        function=_spelled_function(pipeline.function),
        spark=_without_secrets(pipeline.spark),
        sink=pipeline.sink and _shown_sink(pipeline.sink),
        tests={},  # of those who write it, not of the run
        sources={
            name: replaced(source, options=_without_secrets(source.options))
            for name, source in pipeline.sources.items()
        },
        outputs={
            name: replaced(
                output,
                function=_spelled_function(output.function),
                sink=_shown_sink(output.sink),
            )
            for name, output in pipeline.outputs.items()
        },
    )
    return msgspec.json.encode(shown)


def _shown_sink(sink: Sink) -> Sink:
    return msgspec.structs.replace(sink, options=_without_secrets(sink.options))


def _spelled_function(function: Any) -> str | None:
    if callable(function):
        return f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    return function


def _without_secrets(options: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
    return {
        name: "***" if _SECRET.search(name) and not name.endswith("File") else value
        for name, value in options.items()
    }


def definition_hash(pipeline: Pipeline) -> str:
    """Return a hash of what a checkpoint depends on: what is computed, however it is spelled.

    Left out is what may change from run to run: trigger, limits, addresses, how results spread
    over partitions.
    """
    sources = {
        name: (source.queue, source.pattern, source.schema, source.event_time, source.watermark)
        for name, source in sorted(pipeline.sources.items())
    }
    outputs = {name: _computed(output) for name, output in sorted(pipeline.all_outputs.items())}
    parts = [pipeline.name, sources, *outputs.get("", (outputs,))]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def _computed(output: Output) -> tuple[Any, ...]:
    sql, function = output.sql, output.function
    return (
        sql and _SQL_SPACE.sub(lambda found: found["text"] or " ", sql).strip(),
        None if function is None else described_code(function),
        output.window,
        (output.sink.queue, output.sink.table),
    )
