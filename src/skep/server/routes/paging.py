"""The parameters that every listing takes: which page, of which size."""

from typing import Annotated, Final, TypeAlias

from litestar.params import Parameter

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 2**31 - 1

Limit: TypeAlias = Annotated[int, Parameter(ge=0, le=LIMIT_MAX, description="Rows at most.")]
Offset: TypeAlias = Annotated[int, Parameter(ge=0, le=OFFSET_MAX, description="Rows to pass over.")]
