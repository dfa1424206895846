"""The environment variables that tell client commands which broker to connect to."""

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
    """The broker that flags or variables name; None where they name nothing."""

    url: str | None = None
    token: str | None = None
    context: str | None = None


def connection_variables(environment: Mapping[str, str] | None = None) -> ConnectionChoice:
    """Read the variables; an empty one counts as unset."""
    variables = process_environment() if environment is None else environment
    return ConnectionChoice(
        url=variables.get(URL_VARIABLE) or None,
        token=variables.get(TOKEN_VARIABLE) or None,
        context=variables.get(CONTEXT_VARIABLE) or None,
    )
