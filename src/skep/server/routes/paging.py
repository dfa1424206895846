"""The parameters that every listing takes: which page, of which size."""

from typing import Annotated, Final, TypeAlias

from litestar.params import Parameter, QueryParameter

LIMIT_MAX: Final = 1_000
OFFSET_MAX: Final = 2**31 - 1

Limit: TypeAlias = Annotated[int, Parameter(ge=0, le=LIMIT_MAX, description="Rows at most.")]
Offset: TypeAlias = Annotated[int, Parameter(ge=0, le=OFFSET_MAX, description="Rows to pass over.")]
PartitionLimit: TypeAlias = Annotated[
    int,
    QueryParameter(name="partitionLimit", ge=0, le=LIMIT_MAX, description="Partitions at most."),
]
PartitionOffset: TypeAlias = Annotated[
    int,
    QueryParameter(
        name="partitionOffset", ge=0, le=OFFSET_MAX, description="Partitions to pass over."
    ),
]
