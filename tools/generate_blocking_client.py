"""Write the blocking client from the one on asyncio.

    python tools/generate_blocking_client.py           writes src/skep/client/blocking
    python tools/generate_blocking_client.py --check   fails when what is there is not current

A token at a time, so that comments and layout stay: `async` and `await` go, names that have a twin
get its name, `Awaitable[X]` becomes X. What differs in more than words stands in `io_async` and
`io_blocking`, which are both written by hand. `make fmt` is not needed afterwards: the result is
formatted here.
"""

import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from tokenize import TokenInfo

PACKAGE = Path(__file__).parents[1] / "src" / "skep" / "client"
SOURCE = PACKAGE / "aio"
TARGET = PACKAGE / "blocking"
HEADER = (
    "# Generated from skep/client/aio/{name} by tools/generate_blocking_client.py; edit that.\n"
    "# ruff: noqa: UP028, E501 (asynchronous generators cannot delegate; names differ in length)\n"
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


def convert(text: str) -> str:
    """Return the blocking twin of a module."""
    converted = tokenize.untokenize(_twins(tokenize.generate_tokens(io.StringIO(text).readline)))
    converted = re.sub(r"[ \t]+$", "", converted, flags=re.MULTILINE)
    return re.sub(
        r"^(from collections\.abc import )(.*)$",
        lambda found: found[1] + ", ".join(sorted(set(found[2].split(", ")))),
        converted,
        flags=re.MULTILINE,
    )


def _twins(tokens: Iterator[TokenInfo]) -> Iterator[tuple[int, str]]:
    """Yield kind and text only, so that `untokenize` does not insist on the old positions."""
    depths: list[int] = []
    depth = 0
    for token in tokens:
        text = token.string
        if text in {"async", "await"} and token.type == tokenize.NAME:
            continue
        if text == "Awaitable" and token.line.lstrip().startswith(("from ", "import ")):
            text = "Callable"
        elif text == "Awaitable":
            next(tokens)
            depth += 1
            depths.append(depth)
            continue
        if token.type == tokenize.OP and text == "[":
            depth += 1
        elif token.type == tokenize.OP and text == "]":
            depth -= 1
            if depths and depths[-1] == depth + 1:
                depths.pop()
                continue
        if token.type == tokenize.STRING:
            text = _twin_of_text(text)
        yield token.type, TWINS.get(text, text)


def _twin_of_text(text: str) -> str:
    text = re.sub(r"\b(?:async |await )", "", text).replace("on asyncio", "that blocks")
    return re.sub(r"\bAsyncClient\b", "Client", text)


def formatted(text: str) -> str:
    """Return a module as the project formats it."""
    mend = ["check", "--fix", "--select", "I,F401", "--quiet"]
    for arguments in (["format", "--quiet"], mend, ["format", "--quiet"]):
        command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "blocking.py", "-"]
        done = subprocess.run(  # noqa: S603 (our own formatter)
            command, input=text, capture_output=True, text=True, check=False
        )
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
    return sorted(
        path for path in wanted.keys() | there.keys() if wanted.get(path) != there.get(path)
    )


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
