"""What needs attention, for the dashboard and for operators."""

from skep.broker.attention.judge import Attention, judge
from skep.broker.attention.read import AttentionReader
from skep.server.auth import access
from skep.server.auth.guard import requester_of
from skep.server.routes.section import AnyRequest, Section, routes_of


@routes_of("Status")
def attention_routes(section: Section, reader: AttentionReader) -> None:
    """Declare the route."""

    @section.get("/api/v1/attention", access.needs(access.Level.READ_ONLY, access.NOTHING))
    async def list_attention(request: AnyRequest) -> Attention:
        """List what needs attention, worst first, with a likely cause and one action each.

        Everybody who asks within some seconds gets the same reading. A caller restricted to some
        queues sees what concerns these.
        """
        facts, requester = await reader.facts(), requester_of(request)
        if requester.identity.grants is not None:
            facts = facts.only(await requester.permitted(facts.queue_names))
        return judge(facts)
