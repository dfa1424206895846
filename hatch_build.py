"""Build the dashboard into the package when a wheel or a source distribution is made.

Needs Node on the path and the sources in `dashboard/`. Where Node is missing, what was built before
is packed; where there is nothing either, the package serves everything but the dashboard, and a
warning says so. Checkouts in development are left alone: there `make dashboard` builds.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SITE = Path("src", "skep", "dashboard", "site", "index.html")


def build_dashboard(root: Path, warn: Callable[[str], None]) -> None:
    """Build, if there is something to build with; else say what the package will lack."""
    sources = root / "dashboard"
    npm = shutil.which("npm")
    if npm is not None and (sources / "package.json").exists():
        # What only tests need, a browser among it, is left out.
        for command in (("ci", "--omit=dev", "--no-audit", "--no-fund"), ("run", "build")):
            subprocess.run([npm, *command], cwd=sources, check=True)  # noqa: S603 (found by us)
    elif not (root / SITE).exists():
        warn("There is no Node on the path: the package is built without the dashboard.")


class DashboardBuildHook(BuildHookInterface):
    """What hatchling calls before it packs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build before the files are collected."""
        del build_data
        if version != "editable":
            build_dashboard(Path(self.root), self.app.display_warning)
