"""The parameters that every chart takes: from when to when, of which queue."""

from datetime import datetime
from typing import Annotated, TypeAlias

from litestar.params import QueryParameter

Since: TypeAlias = Annotated[
    datetime | None,
    QueryParameter(name="from", description="Where it begins; by default an hour before `to`."),
]
Until: TypeAlias = Annotated[
    datetime | None, QueryParameter(name="to", description="Where it ends; by default now.")
]
OnlyQueue: TypeAlias = Annotated[
    str | None, QueryParameter(name="queue", description="Only this queue.")
]
OnlyHost: TypeAlias = Annotated[
    str | None, QueryParameter(name="hostname", description="Only workers of this host.")
]
OnlyWorker: TypeAlias = Annotated[
    int | None,
    QueryParameter(
        name="workerId", ge=0, le=2**31 - 1, description="Only workers with this number."
    ),
]
