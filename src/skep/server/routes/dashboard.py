"""The dashboard: its page and its files.

The page is the same at every address of the dashboard; the browser chooses the view. The page and
its files are public, as a sign-in page must be: they hold no data. A content policy restricts the
browser to files and calls of this broker.
"""

from typing import Annotated, Any, Final

from litestar import MediaType, Response, get
from litestar.handlers import HTTPRouteHandler

from skep.dashboard.site import CONTENT_POLICY, PAGES, Site, SiteFile
from skep.model.errors import NotFound
from skep.server.auth import access
from skep.server.routes.section import AnyRequest, in_path

_PAGE_HEADERS: Final = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}

_PUBLIC_PAGE: Final[dict[str, Any]] = {"include_in_schema": False, "opt": access.ANYONE}

_OF_API: Final = ("/api/", "/streams/v1/")

_NOT_BUILT: Final = b"""\
<!doctype html>
<html lang="en"><title>Skep</title>
<h1>This broker has no dashboard</h1>
<p>It runs from a checkout in which the dashboard was not built. With Node on the path,
<code>make dashboard</code> builds it; everything else works without.</p>
<p>The HTTP API is described at <a href="/docs">/docs</a>.</p>
</html>
"""


AssetName = Annotated[str, in_path("A file that the page asks for.")]


def dashboard_routes(site: Site | None) -> list[HTTPRouteHandler]:
    """Declare the routes of the built files, which may be missing."""

    @get("/", operation_id="showDashboard", **_PUBLIC_PAGE)
    async def show_absence() -> Response[bytes]:
        return Response(
            _NOT_BUILT, status_code=404, headers=_PAGE_HEADERS, media_type=MediaType.HTML
        )

    if site is None:
        return [show_absence]
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


def lost_page(site: Site | None, request: AnyRequest) -> Response[bytes] | None:
    """Return the page, which says so, to a person at an unknown address; None to all others."""
    is_person = request.method == "GET" and "text/html" in request.headers.get("accept", "")
    if site is None or not is_person or request.url.path.startswith(_OF_API):
        return None
    page = _answer(site.page, request)
    page.status_code = 404
    return page


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
