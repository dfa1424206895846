"""The options of the data source `skep` for writing, checked and typed.

As for reading, an option that is not known is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from skep.model.errors import BadRequest
from skep.model.names import check_name
from skep.settings import InvalidSettings, load_settings
from skep.spark.source.options import Given, InvalidOption, database_url, seconds_of

WRITE_ID_CHARS_MAX: Final = 150
"""It is part of the transaction ids that the writer makes up."""

WRITE_OPTIONS: Final = (
    "url",
    "databaseSchema",
    "queue",
    "path",
    "onError",
    "deadLetterQueue",
    "payload",
    "maxMessageBytes",
    "txnAppId",
    "txnVersion",
    "queueFullTimeout",
    "encryptionKeys",
    "encryptionKeyFile",
    "statementTimeout",
    # Spark hands on what is its own.
    "checkpointLocation",
    "queryName",
)


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
    on_error: Literal["fail", "dead-letter"] = "fail"
    dead_letter_queue: str | None = None
    payload: Literal["json", "text"] = "json"
    message_bytes_max: int
    version: Version | None = None
    full_timeout_s: float = 60.0
    encryption_keys: str | None = None
    encryption_key_file: str | None = None
    statement_timeout_s: float = 300.0


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """Check the options of a writer and type them; raise `InvalidOption`."""
    given = Given(options, WRITE_OPTIONS)
    if "queue" in given and "path" in given:
        raise InvalidOption("give the option queue or a path, not both")
    return WriteOptions(
        url=database_url(given),
        queue=_queue(given, "path" if "path" in given else "queue"),
        on_error=given.choice("onError", "fail", "dead-letter"),
        dead_letter_queue=_queue(given, "deadLetterQueue"),
        payload=given.choice("payload", "json", "text"),
        message_bytes_max=given.count("maxMessageBytes") or _largest_body(),
        version=_version(given),
        full_timeout_s=given.take("queueFullTimeout", 60.0, seconds_of, "a time such as 60s"),
        encryption_keys=given.text("encryptionKeys"),
        encryption_key_file=given.text("encryptionKeyFile"),
        statement_timeout_s=given.take("statementTimeout", 300.0, seconds_of, "a time such as 5m"),
    )


def _queue(given: Given, option: str) -> str | None:
    name = given.text(option)
    if name is None:
        return None
    try:
        checked = check_name("the name", name)
    except BadRequest as error:
        raise InvalidOption(f"the option {option}: {error.message}") from None
    if not checked:
        raise InvalidOption(f"the option {option} names no queue")
    return checked


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
    return Version(
        given.take(
            "txnAppId", "", _write_id, f"a name of 1 to {WRITE_ID_CHARS_MAX} characters, no NUL"
        ),
        given.take("txnVersion", 0, _epoch, "a whole number that grows, at least 0"),
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
