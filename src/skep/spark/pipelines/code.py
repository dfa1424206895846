"""What a function computes, as text: its own code, and all code of the user's that it leads to.

A checkpoint belongs to a computation. The text of the function alone changes with a comment, and
stays the same when a helper beside it changes. So the function is followed from definition to
definition: a name leads to what the top level of its module binds to it, an import into the other
module. Comments, docstrings, layout and the order of definitions do not count. Nothing is run.

Not seen are installed packages, values that are known only when the code runs (a variable of the
environment, a file), attributes of objects, and what is looked up by a text. Of the values that a
function was made with, by a closure or by `functools.partial`, numbers, texts, collections of these
and functions are seen.
"""

import ast
import copy
import importlib.util
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias

_INSTALLED: Final = tuple(
    Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_LIBRARIES: Final = ("skep", "pyspark", "py4j")
"""Not the user's own, wherever they lie: Spark brings a copy of PySpark along."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_BLOCKS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SCOPES: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def described_code(function: Callable[..., Any]) -> list[str]:
    """Return texts that change with what a function computes, and with nothing else."""
    walk = _Walk()
    walk.follow_value(function, "function")
    return sorted(walk.texts)


class _Imported(NamedTuple):
    """What an import binds to a name."""

    module: str
    attribute: str | None = None
    """None for the module itself."""


class _Module(NamedTuple):
    """The top level of a module of the user's own."""

    name: str
    tree: ast.Module
    bound: dict[str, list[ast.stmt]]
    """Statements by the names that they bind or change."""


class _Walk:
    """Follows definitions; each is described once."""

    def __init__(self) -> None:
        self.texts: Final[set[str]] = set()
        self._modules: Final[dict[str, _Module | None]] = {}
        self._seen: Final[set[Any]] = set()
        self._home = ""
        """The package of the function, which is the user's own even if it is installed."""

    def follow_value(self, value: Any, role: str) -> None:
        """Describe a function, or a value that one was made with."""
        if (text := _spelled(value)) is not None:
            self.texts.add(f"{role} = {text}")
        elif isinstance(value, partial):
            self.follow_value(value.func, role)
            for number, each in enumerate(value.args):
                self.follow_value(each, f"{role} {number}")
            for name, each in value.keywords.items():
                self.follow_value(each, f"{role} {name}")
        elif id(value) not in self._seen:
            self._seen.add(id(value))
            if isinstance(getattr(value, "__code__", None), CodeType):
                self._follow_function(value)
            else:
                named = value if hasattr(value, "__qualname__") else value.__class__
                self._home = self._home or _package(named)
                self._follow_name(named.__module__, named.__qualname__.partition(".")[0])

    def _follow_function(self, function: Any) -> None:
        code: CodeType = function.__code__
        self._home = self._home or _package(function)
        module = self._module(function.__module__)
        found = [] if module is None else list(_definitions(module.tree, code))
        if module is not None and found:
            self._follow(module, found)
        else:
            self.texts.add(_compiled(code))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue  # it is given a value later, or never
            self.follow_value(value, f"{code.co_name} {name}")
        for attached in ("__wrapped__", "__self__"):
            if (value := getattr(function, attached, None)) is not None:
                self.follow_value(value, f"{code.co_name} {attached}")

    def _follow(self, module: _Module, nodes: Iterable[ast.AST]) -> None:
        """Describe parts of a module, and what the names in them lead to."""
        for node in nodes:
            if node in self._seen:
                continue
            self._seen.add(node)
            self.texts.add(_text_of(node))
            imported = dict(_imports(node, module.name))
            for name, *attributes in _names(node):
                if name in imported:
                    self._follow_import(imported[name], tuple(attributes))
                else:
                    self._follow_name(module.name, name, tuple(attributes))

    def _follow_name(self, name: str, bound: str, attributes: tuple[str, ...] = ()) -> None:
        """Follow a name to the statements that bind it at the top level of a module."""
        module = self._module(name)
        if module is None:
            self.texts.add(f"{name}.{bound}")
            return
        for statement in module.bound.get(bound, ()):
            imported = dict(_imports(statement, name)).get(bound)
            if imported is None:
                self._follow(module, [statement])
            else:
                self._follow_import(imported, attributes)
        if bound not in module.bound:
            for statement in module.bound.get("*", ()):
                for _, (source, _) in _imports(statement, name):
                    if (star := self._module(source)) is not None and bound in star.bound:
                        self._follow_name(source, bound, attributes)

    def _follow_import(self, imported: _Imported, attributes: tuple[str, ...]) -> None:
        name, attribute = imported
        chain = attributes if attribute is None else (attribute, *attributes)
        # What is looked up in a package may be a module of it.
        while chain and self._module(f"{name}.{chain[0]}") is not None:
            name, chain = f"{name}.{chain[0]}", chain[1:]
        if chain:
            self._follow_name(name, chain[0], chain[1:])
        elif (module := self._module(name)) is not None:
            self._follow(module, module.tree.body)
        else:
            self.texts.add(name)

    def _module(self, name: str) -> _Module | None:
        """Return a module of the user's own; None for any other, and for none at all."""
        if name not in self._modules:
            path = None if name.partition(".")[0] in _LIBRARIES else _file_of(name)
            is_own = path is not None and (
                name.partition(".")[0] == self._home
                or not any(path.is_relative_to(place) for place in _INSTALLED)
            )
            self._modules[name] = _parsed(name, path) if path is not None and is_own else None
        return self._modules[name]


def _package(named: Any) -> str:
    return str(named.__module__).partition(".")[0]


def _file_of(name: str) -> Path | None:
    """Return the source of a module, which need not be imported yet."""
    if name in sys.modules:
        place = getattr(sys.modules[name], "__file__", None)
    else:
        try:
            found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        place = found and found.origin
    path = Path(place or "")
    return path if path.suffix == ".py" and path.is_file() else None


def _parsed(name: str, path: Path) -> _Module:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bound: dict[str, list[ast.stmt]] = {}
    for statement in tree.body:
        for each in set(_bound_names(statement, name)):
            bound.setdefault(each, []).append(statement)
    return _Module(name, tree, bound)


def _definitions(tree: ast.Module, code: CodeType) -> Iterator[ast.AST]:
    """Yield what a code object was compiled from; of lambdas on one line, all."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda):
            name, line = "<lambda>", node.lineno
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            name, line = node.name, min(each.lineno for each in (*node.decorator_list, node))
        else:
            continue
        if (name, line) == (code.co_name, code.co_firstlineno):
            yield node


def _bound_names(statement: ast.stmt, module: str) -> Iterator[str]:
    """Yield the names that a statement binds, or changes: by an item, an attribute, a method."""
    yield from (name for name, _ in _imports(statement, module, is_nested=False))
    for node in _own_scope(statement):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                yield from (name for name, *_ in _names(node))
            case ast.Expr(value=ast.Call(func=ast.Attribute() as method)):
                yield from (name for name, *_ in _names(method))
            case _:
                pass


def _own_scope(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and what is in it, but not what is inside of functions and classes."""
    yield node
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _own_scope(child)


def _imports(
    node: ast.AST, module: str, *, is_nested: bool = True
) -> Iterator[tuple[str, _Imported]]:
    """Yield what imports in a node bind, by name; `*` for all that a module has."""
    for each in ast.walk(node) if is_nested else _own_scope(node):
        if isinstance(each, ast.Import):
            for alias in each.names:
                first = alias.name.partition(".")[0]
                yield alias.asname or first, _Imported(alias.name if alias.asname else first)
        elif isinstance(each, ast.ImportFrom) and (source := _source_of(each, module)) is not None:
            for alias in each.names:
                attribute = None if alias.name == "*" else alias.name
                yield alias.asname or alias.name, _Imported(source, attribute)


def _source_of(node: ast.ImportFrom, module: str) -> str | None:
    """Return the absolute name of the module that is imported from."""
    package = getattr(sys.modules.get(module), "__package__", None) or module.rpartition(".")[0]
    try:
        return importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    except ImportError:
        return None


def _names(node: ast.AST, local: frozenset[str] = frozenset()) -> Iterator[tuple[str, ...]]:
    """Yield the names in a node that are bound outside of it, each with what is looked up in it."""
    attributes: list[str] = []
    inner = node
    while isinstance(inner, ast.Attribute):
        attributes.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name):
        if inner.id not in local:
            yield (inner.id, *reversed(attributes))
    elif attributes:
        yield from _names(inner, local)
    elif isinstance(node, _Function):
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        within = local | _locals(node.args, body)
        outside = [*node.args.defaults, *filter(None, node.args.kw_defaults)]
        outside += [] if isinstance(node, ast.Lambda) else node.decorator_list
        for each in outside:
            yield from _names(each, local)
        for each in body:
            yield from _names(each, within)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _names(child, local)


def _locals(arguments: ast.arguments, body: Iterable[ast.AST]) -> set[str]:
    """Return the names of a function's own: its arguments, and what it assigns to."""
    nodes = [each for part in body for each in _own_scope(part)]
    shared = {name for node in nodes if isinstance(node, ast.Global) for name in node.names}
    assigned = {
        node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg)} | (
        assigned - shared
    )


def _text_of(node: ast.AST) -> str:
    """Spell a node in one way, without comments and docstrings."""
    spelled = copy.deepcopy(node)
    for each in ast.walk(spelled):
        if isinstance(each, _BLOCKS):
            each.body = [part for part in each.body if not _is_text(part)] or [ast.Pass()]
    return "" if _is_text(spelled) else ast.unparse(spelled)


def _is_text(node: Any) -> bool:
    """Tell whether a statement is a text that is not used, as docstrings are."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())):
            return True
        case _:
            return False


def _compiled(code: CodeType) -> str:
    """Describe code whose source cannot be found, such as that of a prompt."""
    inner = [_compiled(each) for each in code.co_consts if isinstance(each, CodeType)]
    values = [_spelled(each) for each in code.co_consts]
    return repr((code.co_name, code.co_code.hex(), code.co_names, values, inner))


def _spelled(value: Any) -> str | None:
    """Spell a plain value, or a collection of such, in one way; None for others."""
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    kind = value.__class__
    if kind not in (tuple, list, set, frozenset, dict):
        return None
    parts = [_spelled(each) for each in (value.items() if kind is dict else value)]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    return f"{kind.__name__}{known if kind in (tuple, list) else sorted(known)}"
