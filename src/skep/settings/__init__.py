"""One typed settings object, and where each of its values came from.

`fields` declares the settings, `layers` merges defaults, preset, file, environment and flags, and
`queen` translates the variables of a Queen deployment. Only this package reads the process
environment; all other packages receive a `Settings`.
"""

from skep.settings.fields import InvalidSettings, Settings, redacted_url
from skep.settings.layers import EffectiveSettings, load_settings

__all__ = ["EffectiveSettings", "InvalidSettings", "Settings", "load_settings", "redacted_url"]
