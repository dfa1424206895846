"""Find a Chromium: the one that is named, one of the system, or the one from the npm registry.

Starting it takes longer than most tests, so they share one.
"""

import fcntl
import os
import shutil
import subprocess
from functools import cache

from playwright.async_api import async_playwright

from tests.tidy.tree import ROOT

DASHBOARD = ROOT / "dashboard"
SITE = ROOT / "src" / "skep" / "dashboard" / "site"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--headless=shell",
    "--disable-gpu",
    "--no-zygote",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
)


def has_node():
    return shutil.which("npm") is not None


def run_npm(*arguments, timeout=300, **variables):
    done = subprocess.run(
        ["npm", *arguments],
        cwd=DASHBOARD,
        env={**os.environ, **variables},
        check=False,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"npm {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@cache
def install_packages():
    if not (DASHBOARD / "node_modules").is_dir():
        run_npm("ci", "--no-audit", "--no-fund")


def find_browser():
    """Return the path of a Chromium, or None where there is none and no Node to get one."""
    if named := os.environ.get("SKEP_TEST_BROWSER"):
        return named
    if installed := next(filter(None, map(shutil.which, NAMES)), None):
        return installed
    if not has_node():
        return None
    install_packages()
    return unpack_browser()


def unpack_browser():
    """Unpack the browser of the npm package once, whole or not at all; return its path.

    Two test processes start at the same time, and a program that is still being written cannot be
    run.
    """
    place = DASHBOARD / "node_modules" / ".browser"
    unfinished = place.with_suffix(".unfinished")
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            run_npm("run", "--silent", "browser", TMPDIR=str(unfinished))
            unfinished.rename(place)
    return str(place / "chromium")


def build_site():
    """Build the dashboard if its sources are newer than what was built."""
    page = SITE / "index.html"
    sources = [path for path in DASHBOARD.rglob("src/**/*") if path.is_file()]
    sources += [DASHBOARD / name for name in ("index.html", "package-lock.json", "vite.config.ts")]
    newest = max(path.stat().st_mtime for path in sources)
    if not page.exists() or page.stat().st_mtime < newest:
        install_packages()
        run_npm("run", "build")


class OpenBrowser:
    """A browser that is started when it is first asked for, and again should it have died."""

    def __init__(self, path):
        self._path = path
        self._playwright = None
        self._browser = None

    async def get(self):
        if self._browser is None or not self._browser.is_connected():
            await self.close()
            self._playwright = await async_playwright().start()
            self._browser = await self._playwright.chromium.launch(
                executable_path=self._path, args=list(FLAGS)
            )
        return self._browser

    async def close(self):
        if self._browser is not None:
            await self._browser.close()
        if self._playwright is not None:
            await self._playwright.stop()
        self._browser = self._playwright = None
