"""The reference page of the settings, written from the settings themselves."""

import msgspec

from skep.settings.fields import FIELDS, accepted_values, description
from skep.settings.layers import PRESETS
from skep.settings.queen import DATABASE_VARIABLES, POOL_VARIABLE, SINGLE_VARIABLES
from skep.settings.reload import RELOADABLE

_HEAD = """\
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
understood; a `SKEP_` variable wins over them.

| variable | setting |
|---|---|
"""


def render_settings_page() -> str:
    """Return the page as Markdown."""
    rows = [_row(name) for name in FIELDS]
    presets = [_preset_row(name) for name in _PRESET_FIELDS]
    queen = [f"| `{variable}` | `{field}` |\n" for variable, (field, _) in SINGLE_VARIABLES.items()]
    database = ", ".join(f"`{name}`" for name in DATABASE_VARIABLES)
    queen += [
        f"| {database}, `PG_USE_SSL` | `database_url`, made of them |\n",
        f"| `{POOL_VARIABLE}` | `connections`, divided by the number of workers |\n",
    ]
    return "".join([_HEAD, *rows, _PRESETS_HEAD, *presets, _QUEEN_HEAD, *queen])


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
