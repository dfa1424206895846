"""Decide whether a condition from an HTTP request may run on this machine.

Spark SQL can read files (by a subquery) and call any static method of Java (`reflect`). A user who
runs `skep replay` may do both; a client that orders a replay over HTTP must not, on the machine of
the worker. Its condition may compare, calculate, and call functions that only look at their
arguments. What is not known to be harmless is refused, and so is a pattern that could keep a task
busy for ever.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from skep.model.errors import BadRequest
from skep.spark.transfer.patterns import UnboundedPattern, check_like, check_regex
from skep.spark.transfer.single_write import explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FUNCTION: Final = "UnresolvedFunction"

_NODES: Final = """
    Add Alias And Between BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Concat Divide
    EqualNullSafe EqualTo GreaterThan GreaterThanOrEqual ILike In IntegralDivide IsNotNull
    IsNotUnknown IsNull IsUnknown LessThan LessThanOrEqual Like LikeAll LikeAny Literal Multiply Not
    NotLikeAll NotLikeAny Or RLike Remainder SemiStructuredExtract StringLocate StringTrim
    StringTrimBoth StringTrimLeft StringTrimRight Substring Subtract UnaryMinus UnaryPositive
    UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction
"""
"""What Spark's parser makes of operators and literals, as names between blanks."""

_FUNCTIONS: Final = """
    abs array_contains between bigint boolean btrim cast ceil ceiling char_length character_length
    coalesce concat contains crc32 date date_trunc day dayofmonth dayofweek dayofyear decimal
    double element_at endswith extract float floor get_json_object greatest hash hour if ifnull
    instr int isnan isnotnull isnull json_array_length json_object_keys lcase least left length
    locate lower ltrim map_contains_key map_keys map_values md5 minute mod month nullif nvl nvl2
    parse_json pmod position quarter regexp regexp_like right rlike round rtrim second sha2 sign
    size smallint split_part startswith string strpos substr substring timestamp tinyint to_date
    to_number to_timestamp trim try_element_at try_parse_json try_to_date try_to_number
    try_to_timestamp try_variant_get ucase unix_micros unix_millis unix_seconds upper variant_get
    weekday weekofyear xxhash64 year
"""


_REGEX_FUNCTIONS: Final = ("regexp", "regexp_like", "rlike")
_LIKES: Final = ("ILike", "Like")
_SEVERAL_LIKES: Final = ("LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny")
_ESCAPE: Final = "\\"

_ALLOWED_NODES: Final = frozenset(_NODES.split())
_ALLOWED_FUNCTIONS: Final = frozenset(_FUNCTIONS.split())


def check_condition(spark: "SparkSession", text: str) -> None:
    """Raise `BadRequest` unless a condition is valid and only looks at the message."""
    session: Any = spark
    with explained():
        # The parser has no public door from Python.
        root = session._jsparkSession.sessionState().sqlParser().parseExpression(text)  # noqa: SLF001
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind: str = node.getClass().getSimpleName()
        if kind not in _ALLOWED_NODES:
            raise BadRequest(f"a condition that is sent to a broker cannot contain a {kind}")
        name: str = node.nameParts().mkString(".").lower() if kind == _FUNCTION else ""
        if name and name not in _ALLOWED_FUNCTIONS:
            raise BadRequest(f"a condition that is sent to a broker cannot call {name}")
        children = list(_items(node.children()))
        if kind == "RLike" or name in _REGEX_FUNCTIONS:
            for each in children[1:]:
                _check_pattern(_written(each))
        elif kind in _LIKES:
            _check_pattern(_written(children[1]), node.escapeChar())
        elif kind in _SEVERAL_LIKES:
            for each in _items(node.patterns()):
                _check_pattern(str(each), _ESCAPE)
        waiting += children


def _items(sequence: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala's."""
    return (sequence.apply(index) for index in range(sequence.size()))


def _written(node: Any) -> str:
    """Return a text that stands in the condition as it is; raise `BadRequest` for any other."""
    if node.getClass().getSimpleName() != "Literal":
        raise BadRequest(
            "a condition that is sent to a broker cannot match by a pattern that is computed"
        )
    return str(node.value())


def _check_pattern(pattern: str, escape: str | None = None) -> None:
    """Check a pattern of LIKE, which has an escape character, or a regular expression."""
    try:
        if escape is None:
            check_regex(pattern)
        else:
            check_like(pattern, escape)
    except UnboundedPattern as error:
        raise BadRequest(
            f"a condition that is sent to a broker cannot match by {pattern!r}: {error}"
        ) from None
