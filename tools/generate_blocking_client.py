"""Write the blocking client from the one on asyncio.

    python tools/generate_blocking_client.py           writes src/skep/client/blocking
    python tools/generate_blocking_client.py --check   fails when what is there is not current

A token at a time, so that comments and layout stay: `async` and `await` go, and names that have a
twin get its name. What differs in more than words is in `io_async` and `io_blocking`, which are
both written by hand. The result is formatted here.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from tokenize import TokenInfo
from typing import NamedTuple

PACKAGE = Path(__file__).parents[1] / "src" / "skep" / "client"
SOURCE = PACKAGE / "aio"
TARGET = PACKAGE / "blocking"
HEADER = (
    "# Generated from skep/client/aio/{name} by tools/generate_blocking_client.py; edit that.\n"
)

TWINS = {
    "AsyncClient": "Client",
    "AsyncGenerator": "Generator",
    "AsyncIterable": "Iterable",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "aclose": "close",
    "aclosing": "closing",
    "aio": "blocking",
    "io_async": "io_blocking",
}
WORDS = [
    (r"\b(?:async |await )", ""),
    (r"on asyncio\b", "that blocks"),
    (r"\bAsyncClient\b", "Client"),
]


class Edit(NamedTuple):
    """Other text for a part of a line."""

    line: int
    begin: int
    end: int
    text: str


def convert(text: str) -> str:
    """Return the blocking twin of a module."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for edit in sorted(_edits(tokens), reverse=True):
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.begin] + edit.text + line[edit.end :]
    return _merge_names("".join(lines))


def _edits(tokens: Sequence[TokenInfo]) -> Iterator[Edit]:
    for place, token in enumerate(tokens):
        if token.type == tokenize.STRING:
            yield from _edits_of_text(token)
        elif token.string in {"async", "await"}:
            yield Edit(*token.start, tokens[place + 1].start[1], "")
        elif token.string in TWINS:
            yield Edit(*token.start, token.end[1], TWINS[token.string])


def _edits_of_text(token: TokenInfo) -> Iterator[Edit]:
    """Change the words in a string, line by line: it may span many."""
    first = token.start[0]
    for number, old in enumerate(token.string.split("\n"), start=first):
        new = old
        for pattern, word in WORDS:
            new = re.sub(pattern, word, new)
        begin = token.start[1] if number == first else 0
        if new != old:
            yield Edit(number, begin, begin + len(old), new)


def _merge_names(text: str) -> str:
    """Name once what an import names twice, because two names have the same twin."""
    return re.sub(
        r"^(from collections\.abc import )(.*)$",
        lambda found: found[1] + ", ".join(dict.fromkeys(found[2].split(", "))),
        text,
        flags=re.MULTILINE,
    )


def formatted(text: str) -> str:
    """Return a module as the project formats it."""
    # UP028: a blocking generator can delegate, an asynchronous one cannot.
    mend = ["check", "--fix", "--unsafe-fixes", "--select", "I,F401,UP028", "--quiet"]
    for arguments in (["format", "--quiet"], mend, ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "blocking.py", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if not done.stdout:
            raise SystemExit(done.stderr)
        text = done.stdout
    return text


def generate() -> dict[Path, str]:
    """Return the text of every generated module."""
    return {
        TARGET / source.name: formatted(
            HEADER.format(name=source.name) + convert(source.read_text())
        )
        for source in sorted(SOURCE.glob("*.py"))
    }


def outdated() -> list[Path]:
    """Return the modules that are not what they should be: changed, missing, or left over."""
    wanted = generate()
    there = {path: path.read_text() for path in TARGET.glob("*.py")}
    everything = wanted.keys() | there.keys()
    return sorted(path for path in everything if wanted.get(path) != there.get(path))


def main(arguments: list[str]) -> int:
    """Write the modules, or check that they are current."""
    if "--check" in arguments:
        late = outdated()
        sys.stderr.writelines(f"{path} is not current\n" for path in late)
        return 1 if late else 0
    TARGET.mkdir(exist_ok=True)
    wanted = generate()
    for path in set(TARGET.glob("*.py")) - wanted.keys():
        path.unlink()
    for path, text in wanted.items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
