"""The columns of a typed table: what JSON Schemas of a queue make of it, one after the other. Pure.

A column has a kind, and the names of the JSON members that go into it, the present one first. A
later schema never changes what a column means. It adds columns, widens them (`int` to `long`, new
members of an object), and renames them where a property says `x-renamed-from`. A property whose
type changed in any other way gets a column beside the old one, which keeps its values:
`amount_string` beside `amount`. Columns of properties that are gone stay.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec

Simple: TypeAlias = Literal[
    "boolean", "int", "long", "double", "string", "date", "timestamp", "json"
]
"""`json` is the text of a value, of whatever type it is."""


class ListKind(msgspec.Struct, frozen=True, tag="list"):
    """An array whose elements have one kind."""

    element: "Kind"


class StructKind(msgspec.Struct, frozen=True, tag="struct"):
    """An object with members of its own."""

    members: tuple[tuple[str, "Kind"], ...]


Kind: TypeAlias = Simple | ListKind | StructKind


class Column(msgspec.Struct, frozen=True):
    """A column made from a member of payloads."""

    name: str
    members: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """The member it is made from, and how that was called before."""
    kind: Kind
    is_current: bool = True
    """The present schema asks for it; it comes before others of the same member."""


class Property(msgspec.Struct, frozen=True):
    """A property of a JSON Schema."""

    name: str
    kind: Kind
    renamed_from: tuple[str, ...] = ()


Columns: TypeAlias = tuple[Column, ...]

RENAMED_FROM: Final = "x-renamed-from"
REST: Final = "rest"
MISFIT: Final = "misfit"

_DEPTH_MAX: Final = 8
"""How deep schemas are followed; what is below, as in one that contains itself, is `json`."""
_STRINGS: Final[Mapping[Any, Simple]] = {"date-time": "timestamp", "date": "date"}
_MEMBER: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def evolved(columns: Columns, schema: Mapping[str, Any] | None, reserved: Iterable[str]) -> Columns:
    """Return the columns of a table after a schema; those it has may change, but none goes.

    `reserved` are the names of columns that every message has.
    """
    properties = list(properties_of(schema or {}))
    present = {each.name for each in properties}
    result = [msgspec.structs.replace(each, is_current=False) for each in columns]
    taken = {name.lower() for name in reserved} | {each.name.lower() for each in result}
    for each in properties:
        _rename(result, each, present, taken)
        _place(result, each, taken)
    return tuple(result)


def _rename(result: list[Column], wanted: Property, present: set[str], taken: set[str]) -> None:
    """Let a column go on under another name, if its property does."""
    if any(column.members[0] == wanted.name for column in result):
        return  # it was done before
    former = [name for name in wanted.renamed_from if name not in present]
    for place, column in enumerate(result):
        if column.members[0] in former and merged(column.kind, wanted.kind) is not None:
            taken.discard(column.name.lower())
            name = _free_name(wanted, taken)
            taken.add(name.lower())
            result[place] = msgspec.structs.replace(
                column, name=name, members=(wanted.name, *column.members)
            )
            return


def _place(result: list[Column], wanted: Property, taken: set[str]) -> None:
    """Find the column of a property, widened if need be, or add one."""
    for place, column in enumerate(result):
        kind = merged(column.kind, wanted.kind)
        if column.members[0] == wanted.name and kind is not None:
            result[place] = msgspec.structs.replace(column, kind=kind, is_current=True)
            return
    name = _free_name(wanted, taken)
    taken.add(name.lower())
    result.append(Column(name, (wanted.name,), wanted.kind))


def _free_name(wanted: Property, taken: set[str]) -> str:
    """Return a name that no other column has, in whatever case: Spark and DuckDB ignore it."""
    plain = re.sub(r"\W", "_", wanted.name) or "_"
    plain = f"_{plain}" if plain[0].isdigit() else plain
    if plain.lower() not in taken:
        return plain
    kind = wanted.kind
    beside = f"{plain}_{kind if isinstance(kind, str) else kind.__struct_config__.tag}"
    name, number = beside, 2
    while name.lower() in taken:
        name, number = f"{beside}_{number}", number + 1
    return name


def merged(old: Kind, new: Kind) -> Kind | None:
    """Return the kind that holds the values of two, in a way Iceberg can widen `old` to."""
    if old == new:
        return old
    if {old, new} == {"int", "long"}:
        return "long"
    if isinstance(old, ListKind) and isinstance(new, ListKind):
        element = merged(old.element, new.element)
        return None if element is None else ListKind(element)
    if isinstance(old, StructKind) and isinstance(new, StructKind):
        return _merged_structs(old, new)
    return None


def _merged_structs(old: StructKind, new: StructKind) -> Kind | None:
    members: dict[str, Kind] = dict(old.members)
    for name, kind in new.members:
        both = merged(members[name], kind) if name in members else kind
        if both is None:
            return None
        members[name] = both
    return StructKind(tuple(members.items())) if _can_be_columns(members) else None


def properties_of(schema: Mapping[str, Any]) -> Iterator[Property]:
    """Yield the properties of a schema for objects, in their order."""
    known = _resolved(schema, schema)
    for name, each in _object(known.get("properties")).items():
        former: Any = _object(each).get(RENAMED_FROM)
        names = cast("list[Any]", former if isinstance(former, list) else [former])
        yield Property(
            name,
            _kind(each, schema, _DEPTH_MAX),
            tuple(text for text in names if isinstance(text, str) and text != name),
        )


def _kind(schema: Any, root: Mapping[str, Any], depth: int) -> Kind:
    """Return the kind of the values that a schema allows; `json` where it is not a single one."""
    known = _resolved(schema, root)
    if depth == 0 or not known:
        return "json"
    for several in ("anyOf", "oneOf"):
        if isinstance(known.get(several), list):
            others = [each for each in known[several] if not _is_null(each)]
            return _common([_kind(each, root, depth - 1) for each in others])
    types = _types(known)
    if types == {"integer", "number"}:
        return "double"
    if len(types) != 1:
        return "json"
    return _kind_of_type(types.pop(), known, root, depth)


def _kind_of_type(
    name: str, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int
) -> Kind:
    form: Any = schema.get("format")
    if name == "boolean":
        return "boolean"
    if name == "integer":
        return "int" if form == "int32" else "long"
    if name == "number":
        return "double"
    if name == "string":
        return _STRINGS.get(form, "string") if isinstance(form, str) else "string"
    if name == "array" and isinstance(schema.get("items"), dict):
        return ListKind(_kind(schema["items"], root, depth - 1))
    members = _object(schema.get("properties"))
    if name == "object" and _can_be_columns(members):
        return StructKind(
            tuple((each, _kind(inner, root, depth - 1)) for each, inner in members.items())
        )
    return "json"


def _can_be_columns(members: Iterable[str]) -> bool:
    """Tell whether names can be members of a struct: there they stay as they are."""
    names = list(members)
    lower = {name.lower() for name in names}
    return bool(names) and len(lower) == len(names) and all(map(_MEMBER.fullmatch, names))


def _types(schema: Mapping[str, Any]) -> set[str]:
    named: Any = schema.get("type")
    if named is None:
        values: Any = schema.get("enum", [schema["const"]] if "const" in schema else [])
        return {_type_of_value(each) for each in values} - {"null"}
    names = cast("list[Any]", named if isinstance(named, list) else [named])
    return {*names} - {"null"}


def _type_of_value(value: Any) -> str:
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    # No other type stands for `json`, as several do.
    return next((name for kind, name in kinds.items() if type(value) is kind), "other")


def _is_null(schema: Any) -> bool:
    return _object(schema).get("type") == "null"


def _object(value: Any) -> dict[str, Any]:
    """Return an object of JSON; an empty one instead of anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _common(kinds: Sequence[Kind]) -> Kind:
    """Return the kind that alternatives share; `json` if they share none."""
    return reduce(lambda one, other: merged(one, other) or "json", kinds) if kinds else "json"


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references within the document; an empty schema stands for what cannot be followed."""
    for _ in range(_DEPTH_MAX):
        known = _object(schema)
        reference: Any = known.get("$ref")
        if not isinstance(reference, str):
            return known
        schema = _at(root, reference)
    return {}


def _at(root: Any, reference: str) -> Any:
    start, _, path = reference.partition("#/")
    found: Any = root if not start and path else None
    for step in path.split("/"):
        found = _object(found).get(step.replace("~1", "/").replace("~0", "~"))
    return found
