"""Take the pictures of docs/guide/cli-admin.md: commands at work on a broker that is busy.

    python tools/capture_admin_terminals.py

Each command runs in a terminal of its own; what it wrote becomes an SVG in docs/images.
"""

import io
import os
import pty
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from skep.client import Client, dead_letter, spread
from skep.settings.fields import process_environment
from skep.testing import running_broker

IMAGES = Path(__file__).parents[1] / "docs" / "images"
COLUMNS = 108
WARM_UP_S = 8.0
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""Pictures load no fonts: every viewer has a monospaced one."""

QUEUES_FILE = """\
queues:
  orders:
    namespace: shop
    options: {leaseTime: 30, retryLimit: 5, ackMode: individual}
  invoices:
    namespace: shop
    options: {leaseTime: 60, retentionSeconds: 604800, retentionEnabled: true}
  mails:
    namespace: shop
    task: notify
"""


def main() -> None:
    """Take all pictures."""
    IMAGES.mkdir(exist_ok=True)
    with running_broker() as broker, Client(broker.url) as client, busy(broker.url):
        prepare(client)
        time.sleep(WARM_UP_S)
        picture("cli-top", broker.url, "top", "--once", "--interval", "2")
        picture("cli-queues-list", broker.url, "queues", "list", "--namespace", "shop")
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "queues.yaml").write_text(QUEUES_FILE)
            command = ("apply", "-f", "queues.yaml", "--dry-run", "--prune", "--namespace", "shop")
            picture("cli-apply", broker.url, *command, folder=folder)


def prepare(client: Client) -> None:
    """Make queues that differ from what is declared, and some dead letters."""
    client.queues.configure("orders", namespace="shop", leaseTime=60, retryLimit=5)
    client.queues.configure("invoices", namespace="shop", leaseTime=60)
    client.queues.configure("returns", namespace="shop")
    client.push_many("invoices", range(3))
    client.ack(client.pop("invoices", group="ledger", batch=2), dead_letter("no such account"))


@contextmanager
def busy(url: str) -> Generator[None]:
    """Keep a broker busy: orders are billed and, more slowly, shipped; nothing is returned."""
    is_over = Event()
    work = [
        Thread(target=produce, args=(url, is_over)),
        Thread(target=consume, args=(url, "orders", "billing", 0.0, is_over)),
        Thread(target=consume, args=(url, "orders", "shipping", 0.05, is_over)),
        Thread(target=consume, args=(url, "returns", "desk", 0.0, is_over)),
    ]
    for thread in work:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in work:
            thread.join()


def produce(url: str, is_over: Event) -> None:
    """Push orders."""
    with Client(url) as client:
        number = 0
        while not is_over.wait(0.02):
            orders = [{"order": number + place, "total": 42.5} for place in range(20)]
            client.push_many("orders", orders, partition=lambda order: spread(order["order"], 8))
            number += len(orders)


def consume(url: str, queue: str, group: str, pause_s: float, is_over: Event) -> None:
    """Take messages and be done with them."""
    with Client(url) as client:
        while not is_over.wait(pause_s):
            client.ack(client.pop(queue, group=group, batch=50, partitions=4, wait_s=5.0))


def picture(name: str, url: str, *command: str, folder: str | None = None) -> None:
    """Run a command, and keep what its terminal showed."""
    shown = terminal_output([*command, "--url", url], folder).replace(url, "http://127.0.0.1:6632")
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.assemble(("$ ", "bold green"), (f"skep {' '.join(command)}", "bold")))
    console.print(Text.from_ansi(shown.rstrip()))
    drawn = console.export_svg(title="skep", theme=MONOKAI, unique_id=name)
    (IMAGES / f"{name}.svg").write_text(FONTS.sub("", drawn))


def terminal_output(arguments: list[str], folder: str | None) -> str:
    """Return what a command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**process_environment(), "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    command = [sys.executable, "-m", "skep", *arguments]
    with subprocess.Popen(
        command, stdout=theirs, stderr=theirs, stdin=subprocess.DEVNULL, env=environment, cwd=folder
    ):
        os.close(theirs)
        seen = b""
        # Linux reports the end of a terminal without writers as an error.
        with suppress(OSError):
            while part := os.read(ours, 65536):
                seen += part
    os.close(ours)
    return seen.decode().replace("\r\n", "\n")


if __name__ == "__main__":
    main()
