"""Write docs/reference/settings.md and http.md from the settings and the OpenAPI document."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from skep.app.parts.interface import describe_api
from skep.settings.fields import FIELDS, accepted_values, description
from skep.settings.layers import PRESETS
from skep.settings.queen import (
    DATABASE_VARIABLES,
    ENCRYPTION_VARIABLES,
    IGNORED_VARIABLES,
    PEER_VARIABLES,
    POOL_VARIABLES,
    SINGLE_VARIABLES,
)
from skep.settings.reload import RELOADABLE
from tools.wire_contract import CONTRACT, ContractRoute, route_shape

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"

_SETTINGS_HEAD = """\
# Settings

This page is written by `make docs` from the code; do not edit it.

A setting is looked for in four places, the later winning: its default, the TOML file (`--config`,
`SKEP_CONFIG`, or `./skep.toml`), the environment (`SKEP_` and the name in capitals), the flag of
`skep serve` where there is one. `skep config` prints what is in force and where it comes from.

SIGHUP makes `skep serve` read its settings again; those marked with * take effect at once, a change
of any other is named in the log and needs a restart. A broker that was started from a terminal
stops at SIGHUP instead.

| setting | default | accepted | meaning |
|---|---|---|---|
"""

_PRESETS_HEAD = f"""
## Presets

What `preset` changes, where nothing else is set.

| setting | {" | ".join(PRESETS)} |
|---|{"---|" * len(PRESETS)}
"""

_PRESET_FIELDS = list(dict.fromkeys(name for values in PRESETS.values() for name in values))

_QUEEN_HEAD = """
## Variables of Queen

A Queen deployment can be pointed at Skep with its environment unchanged. These variables are
understood; a `SKEP_` variable wins over them, and of two names for one setting the lower one here.

| variable | setting |
|---|---|
"""
_QUEEN_IGNORED = """
These set parts that Skep does not have. They are ignored, and a line at startup names those that
are set: {}.
"""
_API_HEAD = """\
# HTTP API

This page is written by `make docs` from the OpenAPI document; do not edit it. A broker serves the
document, with every parameter and body, at `/openapi.json` and as a page at `/docs`; `skep openapi`
prints it without a broker.

`Queen` marks the routes of Queen MQ's wire contract, which its clients call; `Skep` those that only
we have. Errors have one shape everywhere, `{"error", "code"}`. A {queue} or other name in a path is
percent-encoded. The role is what a caller needs where tokens are asked for:
[security.md](security.md).

HEAD is answered wherever GET is, except for pops, which consume: there it is 405. A body may have
the `Content-Encoding` gzip, or zstd where the broker is installed with `skep[zstd]`: one gzip
member or zstd frame, at most `body_bytes_max` before and after decompression. Any other encoding is
415, with an `Accept-Encoding` that lists those accepted. HTTP/1.1 requires exactly one `Host`
(400).

"""
_SOCKET = """\
One more is no HTTP operation and so not in the document: a WebSocket at
`/api/v1/stream/queue/{queue}`, described in [live.md](live.md).
"""
_CONTRACT_HEAD = """
## The wire contract

Every route of Queen 0.15, of what its clients call beyond that, and of the replay that came with
1.6, all of them served; by section of the wire reference.

| section | route |
|---|---|
"""
_METHODS = ("get", "post", "put", "delete")


def render_settings_page() -> str:
    """Return the page as Markdown."""
    rows = [_row(name) for name in FIELDS]
    presets = [_preset_row(name) for name in _PRESET_FIELDS]
    queen = [f"| `{variable}` | `{field}` |\n" for variable, (field, _) in SINGLE_VARIABLES.items()]
    database = _listed(DATABASE_VARIABLES + ENCRYPTION_VARIABLES)
    queen += [
        f"| {database} | `database_url`, made of them |\n",
        f"| {_listed(POOL_VARIABLES)} | `connections`, divided by the number of workers |\n",
        f"| {_listed(PEER_VARIABLES)} | `peers`, those of both |\n",
    ]
    ignored = _QUEEN_IGNORED.format(_listed(IGNORED_VARIABLES))
    return "".join([_SETTINGS_HEAD, *rows, _PRESETS_HEAD, *presets, _QUEEN_HEAD, *queen, ignored])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _row(name: str) -> str:
    default = FIELDS[name].default
    if default is msgspec.NODEFAULT:
        shown = "by account"
    else:
        spelled = str(default).lower() if isinstance(default, bool) else default
        shown = "none" if default is None else f"`{spelled}`"
    mark = " *" if name in RELOADABLE else ""
    return f"| `{name}`{mark} | {shown} | {accepted_values(name)} | {description(name)} |\n"


def _preset_row(name: str) -> str:
    values = [preset.get(name, FIELDS[name].default) for preset in PRESETS.values()]
    return f"| `{name}` | {' | '.join(f'`{value}`' for value in values)} |\n"


def render_http_page(document: dict[str, Any]) -> str:
    """Return the page as Markdown."""
    contract = {route.shape for route in CONTRACT}
    tables = [_table(tag, rows) for tag, rows in _rows_by_tag(document, contract).items()]
    return "".join([_API_HEAD, *tables, _SOCKET, _CONTRACT_HEAD, *map(_contract_row, CONTRACT)])


def _rows_by_tag(document: dict[str, Any], contract: set[tuple[str, str]]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for method, path, operation in _operations(document):
        origin = "Queen" if route_shape(method, path) in contract else "Skep"
        statuses = " ".join(sorted(operation["responses"]))
        summary = operation["summary"].rstrip(".")
        rows.setdefault(operation["tags"][0], []).append(
            f"| `{method.upper()} {path}` | {summary} | {operation['x-access']} | {statuses} "
            f"| {origin} |\n"
        )
    return dict(sorted(rows.items()))


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in sorted(document["paths"].items()):
        for method in _METHODS:
            if method in item:
                yield method, path, item[method]


def _table(tag: str, rows: list[str]) -> str:
    head = f"## {tag}\n\n| route | does | role | statuses | of |\n|---|---|---|---|---|\n"
    return head + "".join(rows) + "\n"


def _contract_row(route: ContractRoute) -> str:
    return f"| {route.section} | `{route.method} {route.path}` |\n"


if __name__ == "__main__":
    (REFERENCE / "settings.md").write_text(render_settings_page())
    (REFERENCE / "http.md").write_text(render_http_page(describe_api()))
