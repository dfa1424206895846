"""Write the terminal captures of the guide of the command line, from a broker that really runs.

    python tools/capture_terminal.py [NAME]...

Each capture is a function in `CAPTURES` that prints to the console it is given; it becomes
`docs/images/cli-NAME.svg`. Paths and the port of this machine are shown as those of an ordinary
installation.
"""

import json
import re
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from skep.cli.messages.event_stream import EventStream
from skep.cli.messages.tail import message_line
from skep.cli.server.doctor_checks import examine, findings_table
from skep.client import Client
from skep.client.endpoints import path_of
from skep.settings.connection import ConnectionChoice
from skep.testing import running_broker

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 110
USUAL_URL = "http://127.0.0.1:6632"
ABSENT_PEER = "http://127.0.0.1:6633"
# The fonts that rich names are fetched from elsewhere; pages here fetch nothing.
SVG_FORMAT = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@dataclass(frozen=True)
class Scene:
    """What a capture may show: a broker, its client, and where its data lie."""

    client: Client
    url: str
    data_dir: Path


def capture_doctor(console: Console, scene: Scene) -> None:
    """Show what the doctor finds, with an instance named that does not run."""
    settings = {"data_dir": scene.data_dir, "peers": ABSENT_PEER}
    findings = list(examine(None, settings, ConnectionChoice(url=scene.url)))
    shown = [
        replace(
            each,
            found=each.found.replace(str(scene.data_dir), "/var/lib/skep").replace(
                scene.url, USUAL_URL
            ),
        )
        for each in findings
    ]
    _prompt(console, "skep doctor")
    console.print(findings_table(shown))


def capture_tail(console: Console, scene: Scene) -> None:
    """Show messages as they come."""
    for number in range(12):
        payload = {"order": 1_000 + number, "total": 17 * number % 90, "currency": "EUR"}
        scene.client.push("orders", payload, partition=f"customer-{number % 4}")
    _prompt(console, "skep tail orders --from start")
    path = path_of("stream/queue", "orders", "events", **{"from": "start"})
    stream = EventStream([scene.url], None, path, idle_s=2.0, on_wait=console.print)
    for event in stream.events():
        console.print(message_line(json.loads(event.data)), soft_wrap=True)


CAPTURES: dict[str, Callable[[Console, Scene], None]] = {
    "doctor": capture_doctor,
    "tail": capture_tail,
}


def _prompt(console: Console, command: str) -> None:
    console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))


def main(names: list[str]) -> None:
    """Write the captures of these names, or all of them."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="skep-capture-") as home:
        Path(home).chmod(0o711)  # as root, PostgreSQL runs under another account
        data_dir = Path(home) / "data"
        with (
            running_broker(["--data-dir", str(data_dir)]) as broker,
            broker.client() as client,
        ):
            for name in names or list(CAPTURES):
                console = Console(record=True, width=WIDTH, highlight=False, force_terminal=True)
                CAPTURES[name](console, Scene(client, broker.url, data_dir))
                svg = console.export_svg(
                    title="skep", theme=MONOKAI, code_format=SVG_FORMAT, unique_id=f"skep-{name}"
                )
                (IMAGES / f"cli-{name}.svg").write_text(svg)


if __name__ == "__main__":
    main(sys.argv[1:])
