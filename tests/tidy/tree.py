"""The files of the project that a person wrote."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
SQL = ROOT / "src" / "skep" / "db" / "sql"


def files(*folders, suffix):
    """Return the files below these folders of the project, in a stable order."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob(f"*{suffix}"))


def python_files():
    return files("src", "tests", "benchmarks", "examples", "tools", suffix=".py")


def sql_files():
    return files("src", suffix=".sql")


def documents():
    return sorted(ROOT.glob("*.md")) + files("docs", "benchmarks", "specs", suffix=".md")


def short(path):
    """Name a file as a person would; also the name of its test case."""
    return str(path.relative_to(ROOT))
