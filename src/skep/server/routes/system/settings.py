"""The settings in force, with their origin: what `skep config` prints, of a running broker."""

import msgspec
from litestar import get
from litestar.handlers import HTTPRouteHandler

from skep.server.auth.access import NOTHING, Level, needs
from skep.settings.reload import SettingsInForce


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


def settings_route(in_force: SettingsInForce) -> HTTPRouteHandler:
    """Make the route around the settings of this process."""

    @get(
        "/api/v1/system/settings",
        tags=["Cluster"],
        operation_id="listSettings",
        opt=needs(Level.ADMIN, NOTHING),
        summary="The settings in force and where each value comes from",
        description="Of the instance that answers. Passwords are hidden.",
    )
    async def list_settings() -> SettingList:
        return SettingList(
            [
                Setting(name, None if value is None else str(value), origin, text)
                for name, value, origin, text in in_force.listed()
            ]
        )

    return list_settings
