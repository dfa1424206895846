"""What an open page of the dashboard costs, and whether it stays responsive, when there is much.

    python -m benchmarks.dashboard

Builds a database of 1,000 queues and 100,000 partitions with an hour of rollups, starts the broker
on it, and opens one page after the other in a real Chromium, twice: while nothing else happens, and
while messages flow. A page passes when no task of its main thread took more than 200 ms of the
processor, and when the broker and PostgreSQL used at most 3% of a core for it.

What a page costs is measured while nothing else happens, against what both use with no page open
just before and just after: under load the difference would drown in the noise of the load itself.
Even so a page that costs nothing may show a little less than zero. Processor time is that of
whole process trees (`meter`), so other programs on the machine make it slower, not larger. With
`PerformanceObserver` the browser tells long tasks by the clock, which on a busy machine include the
time in which others ran; they are shown beside.
"""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import asyncpg
import typer
import uvloop
from playwright.async_api import Browser, Page, async_playwright
from rich.console import Console
from rich.table import Table

from benchmarks.errors import BenchmarkError
from benchmarks.listings import BIG, PIPE_WIDTH, SERVER_COMMAND, fill
from benchmarks.load import Load, Target, running
from benchmarks.meter import Meter, Usage
from benchmarks.plan import PopRole, PushRole, Role, Snapshot
from benchmarks.stack import Stack, own_stack

GOAL_SHARE: Final = 0.03
GOAL_TASK_MS: Final = 200.0
PAGES: Final = {
    "overview": "/",
    "queues": "/queues",
    "waiting queues": "/queues?condition=waiting",
    "queue": f"/queues/{BIG}",
    "partitions": f"/queues/{BIG}?tab=partitions",
    "groups of a queue": f"/queues/{BIG}?tab=groups",
    "messages": f"/messages?queue={BIG}&span=all",
    "groups": "/groups",
    "group": f"/groups/bees/{BIG}",
    "dead letters": "/dead-letters",
    "chains": "/chains",
    "job types": "/chains?tab=types",
    "schedules": "/chains?tab=schedules",
    "workers": "/chains?tab=workers",
    "pipelines": "/pipelines",
    "archive": "/pipelines?tab=archive",
    "traces": "/traces",
    "streams": "/streams",
    "operations": "/operations",
    "system": "/system",
    "settings": "/settings",
}
FLAGS: Final = ("--no-sandbox", "--headless=shell", "--disable-gpu", "--no-zygote")
NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
CATEGORIES: Final = ["toplevel", "disabled-by-default-devtools.timeline", "devtools.timeline"]
FLOWING_QUEUES: Final = 10
FLOWED_MIN: Final = 0.9
"""The share of the rate that must have flowed for a verdict."""
ITEMS: Final = 100
OPEN_S_MAX: Final = 60.0

_OBSERVE: Final = """
window.longTasks = [];
const take = (list) => window.longTasks.push(...list.getEntries().map((task) => task.duration));
new PerformanceObserver(take).observe({ type: "longtask", buffered: true });
"""
_MORE_QUEUES: Final = """
insert into skep.queue (name, namespace)
select 'queue-' || lpad(n::text, 4, '0'), 'space-' || n % 20 from generate_series(1, $1::integer) n
"""
_ROLLUPS: Final = """
insert into skep.queue_minute
select q.id, date_trunc('minute', now()) - n * interval '1 minute', 10, 1000, 100000, 0, 10, 1000,
       100000, 0, 0, 10, 1000, 0, 0, 0, 0, 20000, 900, array_fill(40::bigint, array[25])
from skep.queue q, generate_series(1, 60) n
"""


@dataclass(frozen=True, slots=True)
class Look:
    """What one page did while it was open."""

    page: str
    share_of_core: float
    """Of the broker and PostgreSQL together, without what they use anyway."""
    task_ms: float
    """The most processor time that one task took."""
    long_task_ms: float
    """The longest task by the clock, 0 if none took 50 ms."""


def main(
    partitions: Annotated[int, typer.Option(min=100, help="Partitions in all.")] = 100_000,
    queues: Annotated[int, typer.Option(min=20, help="Queues in all.")] = 1_000,
    rate: Annotated[int, typer.Option(min=0, help="Messages per second that flow.")] = 10_000,
    seconds: Annotated[float, typer.Option(min=2, help="How long each page stays open.")] = 30.0,
    only: Annotated[list[str] | None, typer.Option("--page", help="Only these pages.")] = None,
    browser: Annotated[Path | None, typer.Option(help="A Chromium; found if left out.")] = None,
) -> None:
    """Measure every page; the exit code is 1 if one misses a goal."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)
    pages = {name: path for name, path in PAGES.items() if not only or name in only}
    with own_stack(SERVER_COMMAND) as stack:
        is_met = uvloop.run(
            _measure(console, stack, pages, (partitions, queues, rate), seconds, browser)
        )
    console.print("PASS" if is_met else "FAIL")
    sys.exit(0 if is_met else 1)


async def _measure(
    console: Console,
    stack: Stack,
    pages: dict[str, str],
    sizes: tuple[int, int, int],
    seconds: float,
    browser_path: Path | None,
) -> bool:
    partitions, queues, rate = sizes
    await _fill(stack.database_url, partitions, queues)
    meter = await Meter.connect(stack.database_url, broker_pids=stack.broker_pids)
    url = f"http://{stack.target.host}:{stack.target.port}"
    try:
        async with _open_browser(browser_path or _find_browser()) as browser:
            quiet = await _look_at_all(browser, url, pages, meter, seconds)
            console.print(_table(quiet, "while nothing else happens", has_cost=True))
            async with _flow(stack.target, rate) as load:
                first = await load.snapshot()
                busy = await _look_at_all(browser, url, pages, meter, seconds / 3)
                last = await load.snapshot()
    finally:
        await meter.close()
    pace = (_popped(last) - _popped(first)) / (last.at_s - first.at_s)
    console.print(_table(busy, f"while {pace:,.0f} messages per second flow", has_cost=False))
    if pace < rate * FLOWED_MIN:
        console.print(
            f"only {pace:,.0f} of {rate:,} messages per second flowed: not what was asked"
        )
        return False
    is_cheap = all(look.share_of_core <= GOAL_SHARE for look in quiet)
    return is_cheap and all(look.task_ms <= GOAL_TASK_MS for look in [*quiet, *busy])


def _popped(snapshot: Snapshot) -> int:
    return sum(each.messages for name, each in snapshot.roles.items() if name.startswith("pop"))


async def _fill(database_url: str, partitions: int, queues: int) -> None:
    await fill(database_url, partitions)
    connection = await asyncpg.connect(database_url)
    try:
        known = await connection.fetchval("select count(*) from skep.queue")
        await connection.execute(_MORE_QUEUES, max(queues - known, 0))
        await connection.execute(_ROLLUPS)
        await connection.execute("vacuum analyze")
        await connection.execute("checkpoint")
    finally:
        await connection.close()


@asynccontextmanager
async def _flow(target: Target, rate: int) -> AsyncGenerator[Load]:
    """Push into some queues at a pace, and consume it."""
    names = [f"queue-{n:04}" for n in range(1, FLOWING_QUEUES + 1)]
    pushes: list[Role] = [
        PushRole(
            name=f"push {name}",
            connections=1,
            queue=name,
            partitions=100,
            items=ITEMS,
            payload_bytes=100,
            seed=seed,
            rate=rate / ITEMS / FLOWING_QUEUES,
        )
        for seed, name in enumerate(names)
    ]
    pops: list[Role] = [
        PopRole(
            name=f"pop {name}",
            connections=1,
            queue=name,
            batch=1000,
            partitions=100,
            wait_ms=1_000,
            group="flow",
        )
        for name in names
    ]
    async with running(target, [*pushes, *pops] if rate else []) as load:
        yield load


async def _look_at_all(
    browser: Browser, url: str, pages: dict[str, str], meter: Meter, seconds: float
) -> list[Look]:
    # The first visitor makes the broker prepare its statements; that is not the cost of a page.
    # Nor is what PostgreSQL still does about the database that was just built.
    await _use(browser, url, next(iter(pages.values())), meter, seconds)
    looks: list[Look] = []
    before = await _spent(meter, seconds)
    for name, path in pages.items():
        used, task_ms, long_task_ms = await _use(browser, url, path, meter, seconds)
        after = await _spent(meter, seconds)
        looks.append(Look(name, used - (before + after) / 2, task_ms, long_task_ms))
        before = after
    return looks


async def _use(
    browser: Browser, url: str, path: str, meter: Meter, seconds: float
) -> tuple[float, float, float]:
    """Keep a page open; return what it cost, and how long its tasks took."""
    page: Page = await browser.new_page(locale="en-US")
    page.set_default_timeout(OPEN_S_MAX * 1000)
    await page.add_init_script(_OBSERVE)
    await browser.start_tracing(page=page, categories=CATEGORIES)
    try:
        await page.goto(url + path, wait_until="domcontentloaded")
        await page.wait_for_selector("h1")
        used = await _spent(meter, seconds)
        long_tasks: list[float] = await page.evaluate("window.longTasks")
        task_ms = longest_task_ms(await browser.stop_tracing())
    finally:
        await page.close()
    return used, task_ms, max(long_tasks, default=0.0)


async def _spent(meter: Meter, seconds: float) -> float:
    """Return the share of a core that the broker and PostgreSQL use for a while."""
    before = await meter.read()
    await asyncio.sleep(seconds)
    usage = Usage.between(before, await meter.read())
    if usage.cpu_s is None:
        raise BenchmarkError("the processes of the broker or of PostgreSQL cannot be seen")
    return usage.cpu_s / usage.seconds


def longest_task_ms(trace: bytes) -> float:
    """Return the most processor time that one task of a page's main thread took."""
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event["tdur"]
        for event in events
        if (event["pid"], event["tid"]) in mains and "RunTask" in event["name"] and "tdur" in event
    ]
    return max(tasks, default=0) / 1000


@asynccontextmanager
async def _open_browser(path: Path) -> AsyncGenerator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            await browser.close()


def _find_browser() -> Path:
    """Return a Chromium of the system, or the one that the dashboard's packages bring."""
    if found := next(filter(None, map(shutil.which, NAMES)), None):
        return Path(found)
    sources = Path(__file__).parent.parent / "dashboard"
    asked = subprocess.run(
        ["npm", "run", "--silent", "browser"],
        cwd=sources,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    if asked.returncode:
        raise BenchmarkError("there is no Chromium: name one by --browser, or `npm ci` dashboard/")
    return Path(asked.stdout.strip().splitlines()[-1])


def _table(looks: list[Look], title: str, *, has_cost: bool) -> Table:
    table = Table(title=f"Pages of the dashboard {title}")
    table.add_column("page")
    for name in ("% of a core", "longest task (CPU ms)", "longest task (ms by the clock)"):
        table.add_column(name, justify="right")
    for look in looks:
        table.add_row(
            look.page,
            f"{look.share_of_core * 100:.2f}" if has_cost else "",
            f"{look.task_ms:.0f}",
            f"{look.long_task_ms:.0f}" if look.long_task_ms else "under 50",
        )
    return table


if __name__ == "__main__":
    typer.run(main)
