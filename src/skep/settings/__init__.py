"""One typed settings object, and where each of its values came from.

`fields` says what can be set, `layers` merges defaults, file, environment and flags, and
`queen` translates the variables of a Queen deployment. Only this package reads the process
environment; everybody else is handed a `Settings`.
"""

from skep.settings.fields import InvalidSettings, Settings, redacted_url
from skep.settings.layers import EffectiveSettings, load_settings

__all__ = ["EffectiveSettings", "InvalidSettings", "Settings", "load_settings", "redacted_url"]
