"""The variables by which a command that speaks to a broker finds it.

They are none of the broker's own settings: they say where another process listens.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from skep.settings.fields import process_environment

URL_VARIABLE: Final = "SKEP_URL"
TOKEN_VARIABLE: Final = "SKEP_TOKEN"  # noqa: S105 (the name of a variable)
CONTEXT_VARIABLE: Final = "SKEP_CONTEXT"
CONNECTION_VARIABLES: Final = frozenset({URL_VARIABLE, TOKEN_VARIABLE, CONTEXT_VARIABLE})


@dataclass(frozen=True, slots=True)
class ConnectionChoice:
    """What flags, or variables, say about the broker to speak to; None where they say nothing."""

    url: str | None = None
    token: str | None = None
    context: str | None = None


def connection_variables(environment: Mapping[str, str] | None = None) -> ConnectionChoice:
    """Return what the variables of this process say; an empty one says nothing."""
    variables = process_environment() if environment is None else environment
    return ConnectionChoice(
        url=variables.get(URL_VARIABLE) or None,
        token=variables.get(TOKEN_VARIABLE) or None,
        context=variables.get(CONTEXT_VARIABLE) or None,
    )
