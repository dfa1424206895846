"""Show namespaces and keys to operators, and delete what has expired."""

from dataclasses import dataclass
from typing import Any, Final

import msgspec

from skep.broker.cluster.housekeeping import CallDuty
from skep.broker.kv.operations import LIST_LIMIT, LIST_LIMIT_MAX, check_key_size, check_namespace
from skep.broker.timestamps import wire_time
from skep.db.access.functions import Functions
from skep.db.access.slots import Caller

SWEEP_CALL: Final = "select skep.sweep_kv($1)"
SWEEP_STEP: Final = 1_000
"""Keys deleted in one call."""
SWEEP_INTERVAL_S: Final = 15.0

PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
COUNT_MAX: Final = 1_000_000
"""A namespace is counted no further."""


class KvNamespace(msgspec.Struct, frozen=True):
    """A namespace that has keys."""

    namespace: str
    keys: int
    """Those that have expired count until they are deleted; at most a million are counted."""


class KvNamespaces(msgspec.Struct, frozen=True):
    """The namespaces, in order."""

    namespaces: list[KvNamespace]


class KvListRequest(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Which keys to list."""

    namespace: str
    prefix: str = ""
    after: str | None = None
    """`nextAfter` of the previous page."""
    limit: int = LIST_LIMIT
    """From 1 to 1000; others are brought into that range."""
    keys_only: bool = False
    include_expired: bool = False


class KvRow(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A key."""

    key: str
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Any JSON; not there with `keysOnly`."""
    version: int
    expires_at: str | None
    created_at: str
    updated_at: str
    expired: bool


class KvPage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """A page of keys, in the order of their bytes."""

    rows: list[KvRow]
    truncated: bool
    next_after: str | None
    """`after` of the next page; null on the last one."""
    bytes: int
    """Of the values."""


@dataclass(slots=True, eq=False, frozen=True)
class KvBrowser:
    """Lists what there is. A page is one instant; several pages are not."""

    sql: Functions

    async def list_namespaces(self) -> KvNamespaces:
        """Return the namespaces that have keys."""
        rows = await self.sql.rows("kv_namespaces", COUNT_MAX)
        return KvNamespaces([KvNamespace(*row) for row in rows])

    async def list_keys(self, asked: KvListRequest) -> KvPage:
        """Return a page of the keys of a namespace."""
        check_namespace(asked.namespace)
        check_key_size("prefix", asked.prefix)
        check_key_size("after", asked.after or "")
        limit = min(max(asked.limit, 1), LIST_LIMIT_MAX)
        found = await self.sql.rows(
            "kv_list",
            [asked.namespace],
            [asked.prefix],
            [asked.after],
            [limit + 1],
            PAGE_BYTES_MAX,
            asked.include_expired,
        )
        rows = [row for row in found[:limit] if asked.keys_only or row["has_room"]]
        is_truncated = len(rows) < len(found)
        return KvPage(
            rows=[_shown(row, keys_only=asked.keys_only) for row in rows],
            truncated=is_truncated,
            next_after=rows[-1]["key"] if is_truncated else None,
            bytes=0 if asked.keys_only else sum(len(row["value"].encode()) for row in rows),
        )


def _shown(row: Any, *, keys_only: bool) -> KvRow:
    expires_at = row["expires_at"]
    return KvRow(
        key=row["key"],
        value=msgspec.UNSET if keys_only else msgspec.Raw(row["value"].encode()),
        version=row["version"],
        expires_at=None if expires_at is None else wire_time(expires_at).decode(),
        created_at=wire_time(row["created_at"]).decode(),
        updated_at=wire_time(row["updated_at"]).decode(),
        expired=row["is_expired"],
    )


def kv_sweep(caller: Caller) -> CallDuty:
    """Return the duty that deletes expired keys, a step at a time."""
    return CallDuty(
        "sweep keys", SWEEP_INTERVAL_S, caller, SWEEP_CALL, (SWEEP_STEP,), again_from=SWEEP_STEP
    )
