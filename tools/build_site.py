"""Build the documentation site in build/site: `make site`.

The pages are the Markdown files of the project, where they are. docs/README.md is the table of
contents: a section of it is a section of the site, its links are the entries. MkDocs gets copies,
in which links to folders lead to pages that show what is in them.
"""

import logging
import re
import shutil
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CONTENTS = Path("docs", "README.md")
HOME = Path("README.md")

FENCED = re.compile(r"^(```|~~~).*?^\1", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?P<before>\[(?P<text>[^\[\]]+)\]\()(?P<target>[^)#\s]+)")
LINK_TARGET = re.compile(r"\]\(([^)#\s]+)")
TITLES = {"adr": "Decisions", "deploy": "Deployment files"}
LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}

Entry = dict[str, Any]


def contents(text: str) -> dict[str, list[tuple[str, Path]]]:
    """Return the links of docs/README.md in their order, by section: title and file."""
    sections: dict[str, list[tuple[str, Path]]] = {}
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = section.partition("\n")
        sections[title] = [
            (link["text"], inside(CONTENTS, link["target"]))
            for link in LINK.finditer(FENCED.sub("", body))
        ]
    return sections


def inside(page: Path, target: str) -> Path:
    """Return where a relative link of a page leads, as a path in the project."""
    return (ROOT / page.parent / target).resolve().relative_to(ROOT)


def navigation() -> list[Entry]:
    """Return the sections and entries of the site."""
    sections = contents((ROOT / CONTENTS).read_text())
    listed = [
        {title: [entry(text, path) for text, path in links]} for title, links in sections.items()
    ]
    listed[0] = {title: [str(CONTENTS), *entries] for title, entries in listed[0].items()}
    return [{"Skep": str(HOME)}, *listed]


def entry(title: str, path: Path) -> Entry:
    """Return an entry; of a folder of pages, with its pages below."""
    if not (ROOT / path).is_dir():
        return {title.capitalize() if title.islower() else title: str(path)}
    below = [str(page.relative_to(ROOT)) for page in sorted((ROOT / path).glob("*.md"))]
    return {title.capitalize(): [str(path / "index.md"), *below]}


def listed_pages() -> list[Path]:
    """Return the files of all pages that the site has."""
    sections = contents((ROOT / CONTENTS).read_text()).values()
    pages = [HOME, CONTENTS]
    for path in [path for links in sections for _, path in links]:
        if (ROOT / path).is_dir():
            pages += [page.relative_to(ROOT) for page in (ROOT / path).glob("*.md")]
        else:
            pages.append(path)
    return list(dict.fromkeys(pages))


def write_pages(folder: Path) -> None:
    """Copy the pages, and what they link to, into a folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in listed_pages():
        text = (ROOT / page).read_text()
        targets = LINK_TARGET.findall(FENCED.sub("", text))
        for path in [inside(page, target) for target in targets if ":" not in target]:
            if (ROOT / path).is_dir():
                write(folder / path / "index.md", folder_page(path).encode())
            elif path.suffix != ".md":
                write(folder / path, (ROOT / path).read_bytes())
        write(folder / page, with_links_to_folders(page, text).encode())


def with_links_to_folders(page: Path, text: str) -> str:
    """Let links to folders lead to the page that shows the folder."""

    def lead(link: re.Match[str]) -> str:
        is_folder = ":" not in link["target"] and (ROOT / inside(page, link["target"])).is_dir()
        return link[0] + "/index.md" if is_folder else link[0]

    return LINK.sub(lead, text)


def folder_page(folder: Path) -> str:
    """Return a page that lists the pages of a folder, or shows its files."""
    title = TITLES.get(folder.name, folder.name.capitalize())
    if pages := sorted((ROOT / folder).glob("*.md")):
        lines = [f"- [{title_of(page.read_text())}]({page.name})" for page in pages]
        return f"# {title}\n\n" + "\n".join(lines) + "\n"
    files = sorted(path for path in (ROOT / folder).rglob("*") if path.is_file())
    return f"# {title}\n" + "".join(
        f"\n## {path.relative_to(ROOT / folder)}\n\n"
        f"````{LANGUAGES.get(path.suffix, 'text')}\n{path.read_text()}````\n"
        for path in files
        if "__pycache__" not in path.parts
    )


def title_of(text: str) -> str:
    """Return the title of a page."""
    return text.partition("\n")[0].removeprefix("# ")


def write(path: Path, content: bytes) -> None:
    """Write a file, and the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def build_at(pages: Path, site: Path) -> None:
    """Write the pages to one folder, and the site of them to another; fail at the first warning."""
    from mkdocs.commands.build import build  # noqa: PLC0415 (the extra `docs`)
    from mkdocs.config import load_config  # noqa: PLC0415

    write_pages(pages)
    build(
        load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site), nav=navigation()
        )
    )


def main() -> None:
    """Build the site in build/site."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    build_at(ROOT / "build" / "pages", ROOT / "build" / "site")
    sys.stdout.write("The site is build/site/index.html\n")


if __name__ == "__main__":
    main()
