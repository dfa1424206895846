"""Pipelines from files: YAML, or a Python module. What is wrong is said with its line.

`revenue.yaml` is a definition. `revenue.py`, `revenue.py:name` and `package.module:name` name a
`Pipeline`, or a function without arguments that returns one; the name is `pipeline` if none is
given.
"""

import difflib
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import msgspec
import yaml as _typed_yaml

from skep.spark.pipelines.pipeline import (
    Case,
    InvalidPipeline,
    Output,
    Pipeline,
    Sink,
    Source,
    Transform,
    Window,
    check_pipeline,
)

yaml: Final[Any] = _typed_yaml  # its types are mostly unknown

DEFAULT_NAME: Final = "pipeline"
_YAML: Final = (".yaml", ".yml")
_AT: Final = re.compile(r"^(?P<problem>.*?)(?: - at `(?P<path>\$.*)`)?$", re.DOTALL)
_UNKNOWN: Final = re.compile(r"unknown field `(?P<name>.*)`")
_PARTS: Final[dict[tuple[str, ...], type[msgspec.Struct]]] = {
    (): Pipeline,
    ("sources", "*"): Source,
    ("window",): Window,
    ("sink",): Sink,
    ("outputs", "*"): Output,
    ("outputs", "*", "window"): Window,
    ("tests", "*"): Case,
    ("outputs", "*", "sink"): Sink,
}


def load_pipeline(place: str) -> Pipeline:
    """Read a pipeline, with its functions; raise `InvalidPipeline`."""
    path, _, name = place.partition(":")
    if path.endswith(_YAML):
        return _with_functions(_from_yaml(Path(path)), Path(path).parent)
    found = _named(place if name else f"{place}:{DEFAULT_NAME}", Path())
    pipeline = _called(found, place) if callable(found) else found
    if not isinstance(pipeline, Pipeline):
        raise InvalidPipeline(f"{place} is no Pipeline, nor a function that returns one")
    check_pipeline(pipeline)
    return _with_functions(pipeline, Path(path).parent)


def _called(define: Callable[[], Any], place: str) -> Any:
    try:
        return define()
    except Exception as error:
        raise InvalidPipeline(f"{place} fails: {type(error).__name__}: {error}") from error


def parse_pipeline(text: str, place: str = "the definition") -> Pipeline:
    """Read a definition in YAML; raise `InvalidPipeline` with the line and what to do."""
    try:
        tree: Any = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_repeated_keys(tree, place)
        content: Any = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidPipeline(f"{place}, line {line}: {error.problem}") from None
    except yaml.YAMLError as error:
        raise InvalidPipeline(f"{place}: {' '.join(str(error).split())}") from None
    try:
        pipeline = _converted(content)
        check_pipeline(pipeline)
    except InvalidPipeline as error:
        line, path = _line_of(tree, error.path), ".".join(error.path)
        where = f"{place}, line {line}" + (f", {path}" if path else "")
        raise InvalidPipeline(f"{where}: {error.problem}") from None
    return pipeline


def _from_yaml(path: Path) -> Pipeline:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidPipeline(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InvalidPipeline(f"{path} is not UTF-8: {error}") from None
    return parse_pipeline(text, str(path))


def _converted(content: Any) -> Pipeline:
    """Convert in pieces: msgspec does not name the key of a mapping in which something is wrong."""
    if not isinstance(content, dict):
        raise InvalidPipeline("a pipeline is a mapping with name, sources and sink")
    members: dict[str, Any] = dict(content)  # pyright: ignore[reportUnknownArgumentType] (any YAML)
    for place, kind in (("sources", Source), ("outputs", Output), ("tests", Case)):
        parts: Any = members.get(place)
        if isinstance(parts, dict):
            converted: dict[str, Any] = {}
            for name, part in parts.items():  # pyright: ignore[reportUnknownVariableType]
                converted[str(name)] = _convert(part, kind, (place, str(name)))  # pyright: ignore[reportUnknownArgumentType]
            members[place] = {name: msgspec.to_builtins(each) for name, each in converted.items()}
    return _convert(members, Pipeline, ())


def _convert(content: Any, kind: type[Any], prefix: tuple[str, ...]) -> Any:
    try:
        return msgspec.convert(content, kind, strict=True)
    except msgspec.ValidationError as error:
        found = _AT.match(str(error))
        steps = re.findall(r"\.?([^.\[\]$]+)", (found and found["path"]) or "")
        path = (*prefix, *(step for step in steps if step != "..."))
        problem = found["problem"] if found else str(error)
        raise InvalidPipeline(problem + _advice(problem, path), path=path) from None


def _advice(problem: str, path: tuple[str, ...]) -> str:
    """Say what is possible where something unknown was written."""
    unknown = _UNKNOWN.search(problem)
    kind = next((_PARTS[known] for known in _PARTS if _fits(path, known)), None)
    if unknown is None or kind is None:
        return ""
    known = [field.encode_name for field in msgspec.structs.fields(kind)]
    near = difflib.get_close_matches(unknown["name"], known, 1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _fits(path: tuple[str, ...], known: tuple[str, ...]) -> bool:
    return len(path) == len(known) and all(
        step in (each, "*") for each, step in zip(path, known, strict=True)
    )


def _refuse_repeated_keys(node: Any, place: str) -> None:
    """Refuse what YAML readers pass over in silence: the same key twice."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                line = key.start_mark.line + 1
                raise InvalidPipeline(f"{place}, line {line}: {key.value} is given twice")
            seen.add(key.value)
            _refuse_repeated_keys(value, place)
    elif isinstance(node, yaml.SequenceNode):
        for each in node.value:
            _refuse_repeated_keys(each, place)


def _line_of(node: Any, path: tuple[str, ...]) -> int:
    """Return the line of the innermost part of a path that is written."""
    line: int = node.start_mark.line + 1 if node else 1
    for step in path:
        pairs: list[tuple[Any, Any]] = node.value if isinstance(node, yaml.MappingNode) else []
        found = next((pair for pair in pairs if pair[0].value == step), None)
        if found is None:
            break
        line, node = found[0].start_mark.line + 1, found[1]
    return line


def _with_functions(pipeline: Pipeline, directory: Path) -> Pipeline:
    """Put functions where a pipeline names them."""
    replaced = msgspec.structs.replace
    outputs = {
        name: replaced(each, function=_function(each.function, directory, ("outputs", name)))
        for name, each in pipeline.outputs.items()
    }
    function = _function(pipeline.function, directory, ())
    return replaced(pipeline, function=function, outputs=outputs)


def _function(named: Any, directory: Path, path: tuple[str, ...]) -> Transform | None:
    found = _named(named, directory) if isinstance(named, str) else named
    if found is not None and not callable(found):
        raise InvalidPipeline("is no function", path=(*path, "function"))
    return found


def _named(place: str, directory: Path) -> Any:
    """Return what `module:name` or `file.py:name` names; files are found from a directory."""
    where, _, name = place.partition(":")
    if not name:
        raise InvalidPipeline(f"{place!r} names nothing: write module:name or file.py:name")
    module = _module_of_file(directory / where) if where.endswith(".py") else _module(where)
    try:
        return getattr(module, name)
    except AttributeError:
        raise InvalidPipeline(f"{where} has no {name}") from None


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise InvalidPipeline(f"cannot import {name}: {error}") from None


def _module_of_file(path: Path) -> ModuleType:
    """Run a Python file as a module that travels to executors by value: they have no such file."""
    from pyspark import cloudpickle  # noqa: PLC0415 (heavy, and an extra)

    if not path.is_file():
        raise InvalidPipeline(f"there is no file {path}")
    name = f"skep_pipeline_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InvalidPipeline(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InvalidPipeline(f"{path} fails: {type(error).__name__}: {error}") from error
    by_value: Any = cloudpickle
    by_value.register_pickle_by_value(module)
    return module
