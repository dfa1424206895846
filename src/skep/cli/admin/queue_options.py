"""The options of queues as people type them: `--set leaseTime=60`, `--unset ttl`."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any, TypeAlias

import typer

from skep.model.errors import BadRequest

SetOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="OPTION=VALUE", help="An option of the queue, as `leaseTime=60`; repeat."
    ),
]
UnsetOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--unset", metavar="OPTION", help="Give an option its default; repeat."),
]


def read_options(given: Sequence[str] | None, unset: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the options of these flags, checked; None for those to unset.

    Raises:
        BadRequest: One is not known, or has a value of the wrong kind.
    """
    options = dict(map(_read_pair, given or ()))
    options |= dict.fromkeys(unset or ())
    check_options(options)
    return options


def check_options(options: Mapping[str, Any]) -> None:
    """Make sure that options exist and have values of the right kind.

    A broker takes no offence at an option that it does not know: a typo would go unnoticed.

    Raises:
        BadRequest: One does not.
    """
    import msgspec

    from skep.model.queue_options import OptionChanges

    known = [field.encode_name for field in msgspec.structs.fields(OptionChanges)]
    for name in options:
        if name not in known:
            similar = get_close_matches(name, known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise BadRequest(f"there is no option {name}{hint}")
    try:
        msgspec.convert(options, OptionChanges)
    except msgspec.ValidationError as error:
        raise BadRequest(f"an option has a wrong value: {error}") from error


def _read_pair(text: str) -> tuple[str, Any]:
    import msgspec

    name, separator, value = text.partition("=")
    if not separator:
        raise BadRequest(f"{text} is not OPTION=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value
