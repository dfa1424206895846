"""What instances tell each other, what each knows of the others, and their settings.

`notify` takes two kinds of bodies: a queue by name, as Queen has it, from an admin; and the notices
of other instances, which prove with a stamp in a header that they share the secret. Both only cause
polls to look again and caches to be read again.
"""

from typing import Annotated, Final, Literal

import msgspec
from litestar.params import HeaderParameter

from skep.broker.cluster.report import Cluster, ClusterReport
from skep.broker.cluster.requests import NOTIFY_PATH, STAMP_HEADER
from skep.model.errors import BadRequest
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes.section import AnyRequest, Body, Section, routes_of
from skep.settings.reload import SettingsInForce

_REPORTS: Final = {
    "/internal/api/inter-instance/stats": "reportInstances",
    "/internal/api/shared-state/stats": "reportSharedStateStats",
    "/api/v1/system/shared-state": "reportSharedState",
}
"""The paths that Queen has for one report, and the operation id of each."""

PeerStamp = Annotated[
    str | None,
    HeaderParameter(
        name=STAMP_HEADER,
        description="Sender and time of the notice, and a MAC with the shared secret. Only "
        "instances send it.",
    ),
]


class Notification(msgspec.Struct, frozen=True):
    """A queue whose polls should look again, or the notice of another instance."""

    queue: str | None = None
    partition: str | None = None
    wake: list[tuple[int, int]] | None = None
    """From an instance: pairs of queue id and number of partitions."""
    changed: list[tuple[str, int]] | None = None
    """From an instance: what to read again."""


class Notified(msgspec.Struct, frozen=True):
    """The notification was accepted."""

    status: Literal["ok"] = "ok"


class Setting(msgspec.Struct, frozen=True):
    """One setting."""

    name: str
    value: str | None
    """As text; passwords are hidden."""
    origin: str
    """`default`, a preset, a file, a variable, a flag, or a reload."""
    description: str


class SettingList(msgspec.Struct, frozen=True):
    """All settings of the instance that answers."""

    settings: list[Setting]


_NOTIFICATION: Final = Body(Notification)


@routes_of("Cluster")
def cluster_routes(section: Section, cluster: Cluster, in_force: SettingsInForce) -> None:
    """Declare the routes of the cluster and its settings."""

    @section.post(
        NOTIFY_PATH,
        access.needs(access.Level.ADMIN, access.BODY, signature=STAMP_HEADER),
        body=_NOTIFICATION,
        responses={404: "There is no such queue."},
    )
    async def notify_instance(request: AnyRequest, stamp: PeerStamp = None) -> Notified:
        """Wake the polls that wait for a queue.

        Instances also tell each other here what changed. They have no tokens; those requests are
        signed, and refused (403) if the secret is another or the notice too old.
        """
        notification = await _NOTIFICATION.read(request)
        if stamp is not None or notification.wake is not None or notification.changed is not None:
            cluster.take_notice(stamp, await request.body())
        elif notification.queue is not None:
            await requester_of(request).require(queues={notification.queue})
            await cluster.wake_queue(notification.queue)
        else:
            raise BadRequest("queue is required")
        return Notified()

    for path, operation_id in _REPORTS.items():

        @section.get(path, access.ADMIN, operation_id=operation_id)
        async def report_cluster() -> ClusterReport:
            """Show the other instances, and the notices exchanged with them.

            Counters are those of the process that answers, since it started. The list of instances
            comes from the database and is the same everywhere.
            """
            return await cluster.report()

    @section.get("/api/v1/system/settings", access.needs(access.Level.ADMIN, access.NOTHING))
    async def list_settings() -> SettingList:
        """List the settings in force and the origin of each value.

        Of the instance that answers. Passwords are hidden.
        """
        return SettingList(
            [
                Setting(name, None if value is None else str(value), origin, text)
                for name, value, origin, text in in_force.listed()
            ]
        )
