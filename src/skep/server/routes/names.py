"""The names that many routes take, as parameters of the path or of the query."""

from typing import Annotated, TypeAlias

from litestar.params import PathParameter, QueryParameter

QueueName: TypeAlias = Annotated[
    str, PathParameter(description="The queue's name, percent-encoded.")
]
OnlyNamespace: TypeAlias = Annotated[
    str | None, QueryParameter(description="Only queues of this namespace.")
]
OnlyTask: TypeAlias = Annotated[str | None, QueryParameter(description="Only queues of this task.")]
