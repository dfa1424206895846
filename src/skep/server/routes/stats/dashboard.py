"""The dashboard: its page, its files, and the pulse that its figures come from.

The page is the same at every address of the dashboard; the browser chooses the view. The page and
its files are public, as a sign-in page must be: they hold no data. A content policy restricts the
browser to files and calls of this broker.

`GET /api/v1/dashboard/live` sends the figures of the overview as server-sent events.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any, Final

from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.openapi import ResponseSpec
from litestar.params import PathParameter
from litestar.response import Stream

from skep.broker.pop.feed import Live
from skep.broker.stats.pulse import Pulse, PulseSample
from skep.dashboard.site import CONTENT_POLICY, PAGES, Site, SiteFile
from skep.model.errors import NotFound
from skep.server.auth.access import ACCESS, PUBLIC, Level, needs
from skep.server.routes.event_streams import EVENT_STREAM, event_stream
from skep.server.routes.section import AnyRequest, Section, refusal

_PAGE_HEADERS: Final = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_BEAT: Final = b"event: beat\ndata: {}\n\n"
_PUBLIC_PAGE: Final[dict[str, Any]] = {"include_in_schema": False, "opt": {ACCESS: PUBLIC}}

_NOT_BUILT: Final = b"""\
<!doctype html>
<html lang="en"><title>Skep</title>
<h1>This broker has no dashboard</h1>
<p>It runs from a checkout in which the dashboard was not built. With Node on the path,
<code>make dashboard</code> builds it; everything else works without.</p>
<p>The HTTP API is described at <a href="/docs">/docs</a>.</p>
</html>
"""


AssetName = Annotated[str, PathParameter(description="A file that the page asks for.")]


def dashboard_routes(site: Site | None, pulse: Pulse, live: Live) -> list[HTTPRouteHandler]:
    """Declare the routes of the built files, which may be missing, and of the pulse."""
    pages = _page_route() if site is None else _site_routes(site)
    return [*pages, *_pulse_route(pulse, live)]


def _page_route() -> list[HTTPRouteHandler]:
    @get("/", operation_id="showDashboard", **_PUBLIC_PAGE)
    async def show_absence() -> Response[bytes]:
        return Response(
            _NOT_BUILT, status_code=404, headers=_PAGE_HEADERS, media_type=MediaType.HTML
        )

    return [show_absence]


def _site_routes(site: Site) -> list[HTTPRouteHandler]:
    paths = ["/", *(f"/{page}" for page in PAGES)]
    # Names may hold anything, encoded slashes included, and are cut by the browser.
    paths += [f"/{page}/{{rest:path}}" for page in PAGES if page != "streams"]

    @get(paths, operation_id="showDashboard", **_PUBLIC_PAGE)
    async def show_page(request: AnyRequest) -> Response[bytes]:
        return _answer(site.page, request)

    @get("/assets/{name:str}", operation_id="sendDashboardFile", **_PUBLIC_PAGE)
    async def send_asset(request: AnyRequest, name: AssetName) -> Response[bytes]:
        file = site.assets.get(name)
        if file is None:
            raise NotFound(f"no such file: {name}")
        return _answer(file, request)

    return [show_page, send_asset]


def _answer(file: SiteFile, request: AnyRequest) -> Response[bytes]:
    headers = {
        **_PAGE_HEADERS,
        "cache-control": file.cache_control,
        "etag": file.tag,
        "vary": "accept-encoding",
    }
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=headers, media_type=file.media_type)
    is_gzip_fine = "gzip" in request.headers.get("accept-encoding", "")
    if file.gzipped is not None and is_gzip_fine:
        headers["content-encoding"] = "gzip"
        return Response(file.gzipped, headers=headers, media_type=file.media_type)
    return Response(file.body, headers=headers, media_type=file.media_type)


def _pulse_route(pulse: Pulse, live: Live) -> list[HTTPRouteHandler]:
    section = Section("Status")

    @section.get(
        "/api/v1/dashboard/live",
        needs(Level.READ_ONLY),
        media_type=EVENT_STREAM,
        responses={
            200: ResponseSpec(
                PulseSample,
                media_type=MediaType.JSON,
                generate_examples=False,
                description="An endless stream with one event per sample; this is its data.",
            ),
            503: refusal("Too many connections, or the database is unavailable."),
        },
    )
    async def watch_pulse(request: AnyRequest) -> Stream:
        """Watch the figures of the whole broker as server-sent events.

        Each event `sample` is a `PulseSample`. All watchers share the samples; the more one costs,
        the rarer they are. Events `beat` without data fill the time between them.
        """
        live.check_room()
        return event_stream(request, live, _events(pulse))

    return section.routes


async def _events(pulse: Pulse) -> AsyncGenerator[bytes, None]:
    async with aclosing(pulse.follow()) as samples:
        async for sample in samples:
            yield _BEAT if sample is None else b"event: sample\ndata: %b\n\n" % sample
