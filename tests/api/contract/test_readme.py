"""What the README tells a newcomer to type works."""

import json
import re
import shlex
from pathlib import Path

import httpx

README = Path(__file__).parents[3] / "README.md"
WRITTEN_URL = "http://127.0.0.1:6632"


def curl_commands():
    blocks = re.findall(r"```\n(curl .*?)```", README.read_text(), re.DOTALL)
    return [shlex.split(command) for block in blocks for command in block.split("\n\n")]


def run(command, url, fill):
    """Send what a curl command would send; `fill` replaces what the reader has to fill in."""
    target = next(word for word in command if word.startswith(WRITTEN_URL))
    body = command[command.index("-d") + 1] if "-d" in command else None
    if body is not None:
        body = json.dumps({**json.loads(body), **fill})
    target = target.replace(WRITTEN_URL, url)
    return httpx.request("GET" if body is None else "POST", target, content=body, timeout=60)


def test_the_commands_of_the_readme_push_pop_and_ack(broker):
    push, pop, ack = curl_commands()

    stored = run(push, broker.url, {})
    (message,) = run(pop, broker.url, {}).json()["messages"]
    members = {name: message[name] for name in ("transactionId", "partitionId", "leaseId")}
    (result,) = run(ack, broker.url, members).json()

    assert stored.status_code == 201
    assert message["data"] == {"total": 42}
    assert result["success"], result
