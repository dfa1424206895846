"""The columns of `shape=typed`: those of the typed table of a queue.

As long as the queue has no such table, they are those that its JSON Schema would make.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from skep.model.errors import NotFound
from skep.spark.decode.typed_columns import Columns, evolved
from skep.spark.runtime.postgres import database
from skep.spark.source.options import InvalidOption, ReadOptions, Shape, shape_options
from skep.spark.source.tiered_log import storage_of

SCHEMA: Final = "select q.json_schema::text as json_schema from skep.queue q where q.name = $1"


def shape_of(options: Mapping[str, str], read: ReadOptions) -> Shape:
    """Return what the rows look like; raise `InvalidOption`, or `NotFound` without the queue."""
    shape = shape_options(options)
    return shape if shape.kind != "typed" else replace(shape, columns=_columns(read))


def _columns(options: ReadOptions) -> Columns:
    from skep.spark.archive.lake import Lake  # noqa: PLC0415 (heavy, and an extra)
    from skep.spark.archive.typed_table import (  # noqa: PLC0415 (as above)
        RESERVED,
        find_typed_table,
        layout_of,
    )

    names = options.subscription.names
    if len(names) != 1:
        raise InvalidOption("shape=typed reads one queue: name it by the option queue")
    rows = database(options.url, options.statement_timeout_s).rows(SCHEMA, names[0])
    if not rows:
        raise NotFound(f"queue {names[0]} does not exist")
    with Lake(options.url, storage_of(options)) as lake:
        table = find_typed_table(lake, names[0])
        layout = None if table is None else layout_of(table)
    if layout is not None:
        return layout.columns
    schema: Any = msgspec.json.decode(rows[0]["json_schema"] or "null")
    return evolved((), schema, RESERVED)
