"""Decide whether a condition from an HTTP request may run on this machine.

Spark SQL can read files (by a subquery) and call any static method of Java (`reflect`). A user who
runs `skep replay` may do both; a client that orders a replay over HTTP must not, on the machine of
the worker. Its condition may compare, calculate, and call functions that only look at their
arguments. What is not known to be harmless is refused.
"""

from typing import TYPE_CHECKING, Any, Final

from skep.model.errors import BadRequest
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
        if (
            kind == _FUNCTION
            and (name := node.nameParts().mkString(".").lower()) not in _ALLOWED_FUNCTIONS
        ):
            raise BadRequest(f"a condition that is sent to a broker cannot call {name}")
        children = node.children()
        waiting += [children.apply(index) for index in range(children.size())]
