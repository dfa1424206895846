# Generated from skep/client/aio/groups.py by tools/generate_blocking_client.py; edit that.
"""Consumer groups: their lag, where they stand, and moving them."""

from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

import msgspec

from skep.client.addresses import path_of, spell_moment
from skep.client.blocking.session import Session
from skep.client.items import encode
from skep.client.values import GroupEntry, GroupLag, Json, SeekPreview
from skep.model.errors import BadRequest

Aim: TypeAlias = Literal["start", "end"] | datetime | int
"""One end of the log, a time, or in one partition the offset to deliver next."""

_decode_groups: Final = msgspec.json.Decoder(list[GroupEntry]).decode
_decode_lag: Final = msgspec.json.Decoder(GroupLag).decode
_decode_preview: Final = msgspec.json.Decoder(SeekPreview).decode
_decode_list: Final = msgspec.json.Decoder(list[dict[str, Any]]).decode
_decode: Final = msgspec.json.Decoder(dict[str, Any]).decode


class Groups:
    """The consumer groups of a broker."""

    def __init__(self, session: Session) -> None:
        self._session: Final = session

    def find(
        self, *, queue: str | None = None, limit: int = 1000, offset: int = 0
    ) -> list[GroupEntry]:
        """Return groups, one entry per group and queue."""
        path = path_of("consumer-groups", queue=queue, limit=limit, offset=offset)
        return _decode_groups((self._session.request("GET", path)).body)

    def lagging(self, *, min_lag_s: int = 3600, limit: int = 100) -> list[Json]:
        """Return the partitions whose first unread message is oldest."""
        path = path_of("consumer-groups/lagging", minLagSeconds=min_lag_s, limit=limit)
        return _decode_list((self._session.request("GET", path)).body)

    def describe(self, group: str) -> Json:
        """Return the progress of a group in its partitions, by queue."""
        return _decode((self._session.request("GET", path_of("consumer-groups", group))).body)

    def lag(self, group: str, queue: str, *, limit: int = 100, offset: int = 0) -> GroupLag:
        """Return how far a group is behind, in messages and seconds."""
        path = _queue_path(group, queue, "lag", limit=limit, offset=offset)
        return _decode_lag((self._session.request("GET", path)).body)

    def seek(
        self,
        group: str,
        queue: str,
        to: Aim,
        *,
        partition: str | None = None,
        create: bool = False,
    ) -> Json:
        """Move a group, in all partitions or in one. What it passes over is not delivered.

        Args:
            group: The group.
            queue: The queue.
            to: Where to.
            partition: Only there.
            create: Subscribe the group if it does not exist.
        """
        if isinstance(to, int) and partition is None:
            raise BadRequest("an offset means something in one partition only")
        members = {**_aim_members(to), "create": create}
        path = _queue_path(group, queue, *_partition_segments(partition), "seek")
        return _decode((self._session.request("POST", path, encode(members))).body)

    def preview_seek(
        self, group: str, queue: str, to: Aim, *, partition: str | None = None
    ) -> SeekPreview:
        """Return what a seek would skip and replay."""
        query: Json = {}
        if isinstance(to, str):
            query["to"] = to
        elif isinstance(to, datetime):
            query["timestamp"] = to
        else:
            query["offset"] = to
        segments = (*_partition_segments(partition), "seek", "preview")
        path = _queue_path(group, queue, *segments, **query)
        return _decode_preview((self._session.request("GET", path)).body)

    def positions(self, group: str, queue: str, *, limit: int = 1000) -> dict[str, int]:
        """Return the last offset that is done, by partition."""
        path = _queue_path(group, queue, "offsets", limit=limit)
        return _decode((self._session.request("GET", path)).body)["offsets"]

    def set_positions(self, group: str, queue: str, offsets: dict[str, int]) -> Json:
        """Set the last offset that is done, by partition."""
        body = encode({"offsets": offsets})
        path = _queue_path(group, queue, "offsets")
        return _decode((self._session.request("PUT", path, body)).body)

    def pause(self, group: str, queue: str) -> None:
        """Deliver nothing more to a group."""
        self._session.request("POST", _queue_path(group, queue, "pause"))

    def resume(self, group: str, queue: str) -> None:
        """Deliver to a group again."""
        self._session.request("POST", _queue_path(group, queue, "resume"))

    def delete(self, group: str, queue: str | None = None) -> Json:
        """Forget the progress of a group, on one queue or on all."""
        path = path_of("consumer-groups", group) if queue is None else _queue_path(group, queue)
        return _decode((self._session.request("DELETE", path)).body)


def _queue_path(group: str, queue: str, *segments: str, **query: object) -> str:
    return path_of("consumer-groups", group, "queues", queue, *segments, **query)


def _partition_segments(partition: str | None) -> tuple[str, ...]:
    return () if partition is None else ("partitions", partition)


def _aim_members(to: Aim) -> Json:
    if isinstance(to, str):
        return {"toStart": to == "start", "toEnd": to == "end"}
    if isinstance(to, datetime):
        return {"timestamp": spell_moment(to)}
    return {"offset": to}
