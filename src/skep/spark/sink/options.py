"""The options of the data source `skep` for writing, checked and typed.

As for reading, an option that is not known is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from skep.model.errors import BadRequest
from skep.model.names import check_name
from skep.settings import InvalidSettings, load_settings
from skep.spark.source.options import (
    COUNT,
    DURATION,
    Given,
    InvalidOption,
    Option,
    database_url,
    declared_options,
    one_of,
    take_options,
)

RESULT_TABLE: Final = "resultTable"
"""By this option pipelines hand over their table of the lake; it is not for users."""

WRITE_ID_CHARS_MAX: Final = 150
"""It is part of the transaction ids that the writer makes up."""


@dataclass(frozen=True, slots=True)
class Version:
    """Which of its writes a program says this is: repeated under the same name, it is skipped."""

    write_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """Everything a writer can be told."""

    url: str
    queue: str | None = None
    on_error: Annotated[
        Literal["fail", "dead-letter"], Option("onError", *one_of("fail", "dead-letter"))
    ] = "fail"
    dead_letter_queue: str | None = None
    payload: Annotated[Literal["json", "text"], Option("payload", *one_of("json", "text"))] = "json"
    message_bytes_max: int
    version: Version | None = None
    full_timeout_s: Annotated[float, Option("queueFullTimeout", *DURATION)] = 60.0
    encryption_keys: Annotated[str | None, Option("encryptionKeys")] = None
    encryption_key_file: Annotated[str | None, Option("encryptionKeyFile")] = None
    statement_timeout_s: Annotated[float, Option("statementTimeout", *DURATION)] = 300.0

    @property
    def target(self) -> str:
        """What the write is recorded for, beside its name.

        A program may give one version to all writes of a micro-batch. The id of a stream is its
        own, so a stream needs no target, and stays one write whatever becomes of its options.
        """
        if self.version is None:
            return ""
        return "rows" if self.queue is None else f"queue:{self.queue}"


WRITE_OPTIONS: Final = (
    *("url", "databaseSchema", "queue", "path", "deadLetterQueue", "maxMessageBytes"),
    *("txnAppId", "txnVersion"),
    *(each.name for each in declared_options(WriteOptions).values()),
    # Spark hands on what is its own.
    *("checkpointLocation", "queryName"),
)


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer and type them; raise `InvalidOption`."""
    given = Given(options, WRITE_OPTIONS)
    if "queue" in given and "path" in given:
        raise InvalidOption("give the option queue or a path, not both")
    return take_options(
        WriteOptions,
        given,
        url=database_url(given),
        queue=_queue(given, "path" if "path" in given else "queue"),
        dead_letter_queue=_queue(given, "deadLetterQueue"),
        message_bytes_max=given.take(Option("maxMessageBytes", *COUNT)) or _largest_body(),
        version=_version(given),
    )


def _queue(given: Given, named: str) -> str | None:
    name = given.get(named)
    if name is None:
        return None
    if not name:
        raise InvalidOption(f"the option {named} names no queue")
    try:
        return check_name("the name", name)
    except BadRequest as error:
        raise InvalidOption(f"the option {named}: {error.message}") from None


def _largest_body() -> int:
    """A row may be as large as what a broker with these settings would take."""
    try:
        return load_settings().settings.body_bytes_max
    except InvalidSettings as error:
        raise InvalidOption(f"there is no option maxMessageBytes, and {error.message}") from None


def _version(given: Given) -> Version | None:
    if ("txnAppId" in given) != ("txnVersion" in given):
        raise InvalidOption("give both of txnAppId and txnVersion, or none")
    if "txnAppId" not in given:
        return None
    named = f"a name of 1 to {WRITE_ID_CHARS_MAX} characters, no NUL"
    return Version(
        given.take(Option("txnAppId", _write_id, named)),
        given.take(Option("txnVersion", _epoch, "a whole number that grows, at least 0")),
    )


def _write_id(text: str) -> str:
    if not 0 < len(text) <= WRITE_ID_CHARS_MAX or "\0" in text:
        raise ValueError(text)
    return text


def _epoch(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 62:
        raise ValueError(text)
    return number
