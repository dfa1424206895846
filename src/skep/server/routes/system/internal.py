"""What instances tell each other, and what each knows of the others.

`notify` takes two kinds of bodies: a queue by its name, as Queen has it, from whoever may
administer; and the notices of other instances, which prove by a stamp in a header that they share
the secret. Both can only cause polls to look again and things to be read again.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from litestar import Request, get, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter

from skep.broker.cluster.report import Cluster, ClusterReport
from skep.broker.cluster.requests import NOTIFY_PATH, STAMP_HEADER
from skep.model.errors import BadRequest, Unauthenticated
from skep.server.api_document.bodies import body_of
from skep.server.auth.access import ACCESS, PUBLIC, Level, needs
from skep.server.auth.guard import visitor_of
from skep.server.auth.identity import STRANGER
from skep.server.hot.decoding import decode_body
from skep.server.routes.refusals import refusal

_TAGS: Final = ["Cluster"]

_REPORTS: Final = {
    "/internal/api/inter-instance/stats": "reportInstances",
    "/internal/api/shared-state/stats": "reportSharedStateStats",
    "/api/v1/system/shared-state": "reportSharedState",
}
"""The paths that Queen has for one report, and what the document calls each."""

PeerStamp = Annotated[
    str | None,
    HeaderParameter(
        name=STAMP_HEADER,
        description="Who sent the notice, when, and a MAC with the shared secret. Only instances "
        "send it.",
    ),
]


class Notification(msgspec.Struct, frozen=True):
    """A queue whose polls should look again, or the notice of another instance."""

    queue: str | None = None
    partition: str | None = None
    wake: list[tuple[int, int]] | None = None
    """Of an instance: pairs of queue id and number of partitions."""
    changed: list[tuple[str, int]] | None = None
    """Of an instance: what to read again."""


class Notified(msgspec.Struct, frozen=True):
    """It was heard."""

    status: Literal["ok"] = "ok"


_decoder = msgspec.json.Decoder(Notification)


def internal_routes(cluster: Cluster) -> list[HTTPRouteHandler]:
    """Make the routes around what the broker knows of the cluster."""

    @post(
        NOTIFY_PATH,
        status_code=200,
        tags=_TAGS,
        operation_id="notifyInstance",
        opt={ACCESS: PUBLIC},
        summary="Let the polls that wait for a queue look again",
        description="Also how instances tell each other what changed; those requests are signed.",
        operation_class=body_of(Notification),
        responses={
            403: refusal("A notice of an instance that does not share the secret, or is old."),
            404: refusal("There is no such queue."),
        },
    )
    async def notify(request: Request[Any, Any, Any], stamp: PeerStamp = None) -> Notified:
        # Instances have no tokens; what they sign is checked by whoever takes it.
        if stamp is None and visitor_of(request).identity is STRANGER:
            raise Unauthenticated("only notices signed with peer_secret are taken without a token")
        body = await request.body()
        notification = decode_body(_decoder, body, {})
        if stamp is not None or notification.wake is not None or notification.changed is not None:
            cluster.take_notice(stamp, body)
        elif notification.queue is not None:
            await cluster.wake_queue(notification.queue)
        else:
            raise BadRequest("queue is required")
        return Notified()

    return [notify, *(_report_route(cluster, path, name) for path, name in _REPORTS.items())]


def _report_route(cluster: Cluster, path: str, operation_id: str) -> HTTPRouteHandler:
    @get(
        path,
        tags=_TAGS,
        operation_id=operation_id,
        opt=needs(Level.ADMIN),
        summary="What this process told and heard of other instances, and which there are",
        description=(
            "Counters are those of the process that answers, since it started. The list of "
            "instances comes from the database and is the same everywhere."
        ),
    )
    async def report_cluster() -> ClusterReport:
        return await cluster.report()

    return report_cluster
