"""Questions before something is destroyed."""

import sys
from typing import Annotated, TypeAlias

import typer

from skep.model.errors import BadRequest

Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirm(question: str, *, is_answered: bool) -> None:
    """Go on if the person at the terminal says yes, or said so beforehand with --yes.

    Raises:
        BadRequest: Nobody can be asked.
    """
    if is_answered:
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise BadRequest(f"{question} Nobody can be asked here: say --yes")
    typer.confirm(question, abort=True, err=True)
