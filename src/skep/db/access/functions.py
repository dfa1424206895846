"""Call SQL functions by name, where a call is too rare to be prepared in advance."""

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from skep.db.access.slots import Caller
from skep.model.errors import SkepError

_FUNCTION_CALL: Final = "select * from skep.{}({})"


@cache
def statement_of(function: str, parameter_count: int) -> str:
    """Return the statement that calls a function of the schema `skep`."""
    parameters = ", ".join(f"${number}" for number in range(1, parameter_count + 1))
    return _FUNCTION_CALL.format(function, parameters)


class Functions:
    """The functions of the schema `skep`, called through a connection or a pool of them."""

    def __init__(self, caller: Caller) -> None:
        self._caller: Final = caller

    async def call(self, statement: str, *arguments: object) -> Sequence[Any]:
        """Run any statement and return its rows."""
        return await self._caller.call(statement, *arguments)

    async def rows(self, function: str, *arguments: object) -> Sequence[Any]:
        """Return the rows of a function."""
        return await self._caller.call(statement_of(function, len(arguments)), *arguments)

    async def row(self, function: str, *arguments: object, missing: SkepError | None = None) -> Any:
        """Return the first row of a function; raise `missing` instead if it may have none."""
        rows = await self.rows(function, *arguments)
        if not rows and missing is not None:
            raise missing
        return rows[0]

    async def value(
        self, function: str, *arguments: object, missing: SkepError | None = None
    ) -> Any:
        """Return the result of a function; raise `missing` instead of null, false or 0."""
        ((value,),) = await self.rows(function, *arguments)
        if not value and missing is not None:
            raise missing
        return value
