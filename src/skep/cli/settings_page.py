"""The reference page of the settings, written from the settings themselves."""

import msgspec

from skep.settings.fields import FIELDS, accepted_values, description
from skep.settings.queen import DATABASE_VARIABLES, POOL_VARIABLE, SINGLE_VARIABLES

_HEAD = """\
# Settings

This page is written by `make docs` from the code; do not edit it.

A setting is looked for in four places, the later winning: its default, the TOML file (`--config`,
`SKEP_CONFIG`, or `./skep.toml`), the environment (`SKEP_` and the name in capitals), the flag of
`skep serve` where there is one. `skep config` prints what is in force and where it comes from.

| setting | default | accepted | meaning |
|---|---|---|---|
"""

_QUEEN_HEAD = """
## Variables of Queen

A Queen deployment can be pointed at Skep with its environment unchanged. These variables are
understood; a `SKEP_` variable wins over them.

| variable | setting |
|---|---|
"""


def render_settings_page() -> str:
    """Return the page as Markdown."""
    rows = [_row(name) for name in FIELDS]
    queen = [f"| `{variable}` | `{field}` |\n" for variable, (field, _) in SINGLE_VARIABLES.items()]
    database = ", ".join(f"`{name}`" for name in DATABASE_VARIABLES)
    queen += [
        f"| {database}, `PG_USE_SSL` | `database_url`, made of them |\n",
        f"| `{POOL_VARIABLE}` | `connections`, divided by the number of workers |\n",
    ]
    return "".join([_HEAD, *rows, _QUEEN_HEAD, *queen])


def _row(name: str) -> str:
    default = FIELDS[name].default
    if default is msgspec.NODEFAULT:
        shown = "by account"
    else:
        spelled = str(default).lower() if isinstance(default, bool) else default
        shown = "none" if default is None else f"`{spelled}`"
    return f"| `{name}` | {shown} | {accepted_values(name)} | {description(name)} |\n"
