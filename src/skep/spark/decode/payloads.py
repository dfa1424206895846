"""Payloads by a schema: JSON to the types of Spark, checked while it is decoded.

The type of the payload column becomes a type of msgspec's, which decodes and checks in one go.
Members that the schema does not name are skipped, those that are missing become null, as Spark's
own `from_json` does. As there, a time without an offset is one of the session's time zone, unless
the column has none either; then a time with an offset does not fit. A payload that does not fit
raises a `ValueError`, which names the member.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime, tzinfo
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final, TypedDict

import msgspec
from msgspec import Meta
from pyspark.sql import types as spark

from skep.spark.decode.time_zones import session_zone
from skep.spark.source.columns import InvalidColumns

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

Decode = Callable[[bytes], Any]
Adapt = Callable[[Any], Any]
FindZone = Callable[[], tzinfo | None]


def _integer(bits: int) -> Any:
    return Annotated[int, Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]


_typed_dict: Final[Any] = TypedDict  # made from a schema, not from a declaration

SCALARS: Final[dict[type, Any]] = {
    spark.StringType: str,
    spark.BooleanType: bool,
    spark.ByteType: _integer(8),
    spark.ShortType: _integer(16),
    spark.IntegerType: _integer(32),
    spark.LongType: _integer(64),
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.DecimalType: Decimal,
    spark.DateType: date,
    spark.TimestampType: datetime,
    spark.TimestampNTZType: Annotated[datetime, Meta(tz=False)],
    spark.BinaryType: bytes,
}


SEALED_BYTES: Final = 12 + 16
"""What sealing adds to a payload before base64: nonce and tag, see `skep.model.encryption`."""


def payload_bytes(data: bytes, *, is_sealed: bool) -> int:
    """Return how long a payload was when it was pushed; a sealed one need not be opened."""
    if not is_sealed:
        return len(data)
    base64 = data[1:-1]  # without the quotes of JSON
    return len(base64) // 4 * 3 - base64[-2:].count(b"=") - SEALED_BYTES


def is_carried(data_type: "DataType") -> bool:
    """Tell whether payloads of this type are handed on as they are, and not decoded."""
    return isinstance(data_type, (spark.StringType, spark.BinaryType))


def payload_decoder(data_type: "DataType", find_zone: FindZone = session_zone) -> Decode:
    """Return a decoder of JSON payloads for this type; raise `InvalidColumns` if there is none.

    `find_zone` returns the time zone of times without one, None for that of the machine.
    """
    decode = msgspec.json.Decoder(_python_type(data_type)).decode
    adapt = _adapter(data_type, find_zone)
    return decode if adapt is None else lambda payload: adapt(decode(payload))


def _python_type(data_type: "DataType") -> Any:
    """Return the type that msgspec decodes; all is optional, as columns of Spark are."""
    if isinstance(data_type, spark.StructType):
        members = {field.name: _python_type(field.dataType) for field in data_type.fields}
        return _typed_dict("Payload", members, total=False) | None
    if isinstance(data_type, spark.ArrayType):
        return list[_python_type(data_type.elementType)] | None
    if isinstance(data_type, spark.MapType) and isinstance(data_type.keyType, spark.StringType):
        return dict[str, _python_type(data_type.valueType)] | None
    if type(data_type) not in SCALARS:
        raise InvalidColumns(
            f"payloads cannot be read as {data_type.simpleString()}; read them as string and use "
            "the functions of Spark"
        )
    return SCALARS[type(data_type)] | None


def _adapter(data_type: "DataType", find_zone: FindZone) -> Adapt | None:
    """Return what makes decoded values fit for Arrow, or None for those that are.

    It wants maps as pairs, and decimals with exactly the digits of their column. Times without a
    time zone it takes for UTC.
    """
    if isinstance(data_type, spark.StructType):
        inner = {field.name: _adapter(field.dataType, find_zone) for field in data_type.fields}
        adapters = {name: adapt for name, adapt in inner.items() if adapt is not None}
        return _struct_adapter(adapters) if adapters else None
    if isinstance(data_type, spark.ArrayType):
        adapt = _adapter(data_type.elementType, find_zone)
        return None if adapt is None else lambda value: value and [adapt(each) for each in value]
    if isinstance(data_type, spark.MapType):
        adapt = _adapter(data_type.valueType, find_zone) or _as_it_is
        return lambda value: value and [(key, adapt(each)) for key, each in value.items()]
    if isinstance(data_type, spark.DecimalType):
        return _decimal_adapter(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.TimestampType):
        return _time_adapter(find_zone())
    return None


def _decimal_adapter(precision: int, scale: int) -> Adapt:
    digits, context = Decimal(1).scaleb(-scale), Context(precision)

    def adapt_decimal(value: Decimal | None) -> Decimal | None:
        try:
            return value if value is None else value.quantize(digits, context=context)
        except ArithmeticError:
            raise ValueError(f"{value} does not fit decimal({precision},{scale})") from None

    return adapt_decimal


def _time_adapter(zone: tzinfo | None) -> Adapt | None:
    """Return what gives times without a time zone that of the session, or of the machine."""
    if zone is UTC:
        return None

    def adapt_time(value: datetime | None) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value
        try:
            return value.replace(tzinfo=zone) if zone is not None else value.astimezone()
        except (OverflowError, OSError):
            raise ValueError(f"{value} is out of range") from None

    return adapt_time


def _as_it_is(value: Any) -> Any:
    return value


def _struct_adapter(adapters: dict[str, Adapt]) -> Adapt:
    def adapt_struct(value: Any) -> Any:
        if value is not None:
            for name, adapt in adapters.items():
                if name in value:
                    value[name] = adapt(value[name])
        return value

    return adapt_struct
