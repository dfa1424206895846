"""Tests that a pipeline brings along: given messages, expected rows, and what differs."""

import pytest

from skep.spark.pipelines.cases import try_cases
from skep.spark.pipelines.files import parse_pipeline
from skep.spark.pipelines.pipeline import InvalidPipeline

pytestmark = pytest.mark.slow

SHOP = """
name: shop
sources:
  orders:
    queue: orders
    schema: shop STRING, at TIMESTAMP, amount DOUBLE
    eventTime: payload.at
    watermark: 30s
  notes: {queue: notes}
outputs:
  revenue:
    sql: select * from orders
    expect:
      positive: {check: revenue > 0, otherwise: drop}
    window:
      kind: tumbling
      size: 1m
      by: [payload.shop]
      aggregate: {orders: count(*), revenue: sum(payload.amount)}
    sink: {queue: revenue}
  noted:
    sql: select partition, get_json_object(payload, '$.text') as text from notes
    sink: {table: noted}
tests:
  a window is closed, and one without revenue left out:
    given:
      orders:
        - payload: {shop: paris, at: 2026-01-31T10:00:10Z, amount: 40}
        - payload: {shop: paris, at: 2026-01-31T10:00:40Z, amount: 2}
        - payload: {shop: rome, at: 2026-01-31T10:05:00Z, amount: 0}
      notes:
        - {partition: a, payload: {text: hello}}
    expect:
      revenue:
        - {shop: paris, orders: 2, revenue: 42, window_end: 2026-01-31T10:01:00Z}
      noted:
        - {text: hello, partition: a}
"""
PARIS = '{"shop":"paris","orders":2,"revenue":42.0,"window_end":"2026-01-31T10:01:00.000Z"}'


def tried(spark, text):
    (case,) = try_cases(spark, parse_pipeline(text))
    return case.problems


def test_what_comes_out_is_compared_with_what_is_expected(spark):
    assert tried(spark, SHOP) == ()

    changed = SHOP.replace("revenue: 42", "revenue: 43").replace("text: hello, p", "text: null, p")
    assert tried(spark, changed) == (
        f"output revenue: missing: {PARIS.replace('42', '43')}",
        f"output revenue: not expected: {PARIS}",
        'output noted: missing: {"text":null,"partition":"a"}',
        'output noted: not expected: {"text":"hello","partition":"a"}',
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("{partition: a, payload", "{part: a, payload", "messages have no part; they have queue"),
        ("{text: hello, p", "{words: hello, p", "no column words; they have partition, text"),
        ("amount: 40", "amount: many", "Malformed records"),
        ("sum(payload.amount)", "sum(payload.amont)", "No such struct field `amont`"),
        ("otherwise: drop", "otherwise: fail", "do not meet the expectation positive: revenue > 0"),
    ],
)
def test_what_goes_wrong_is_a_problem_of_the_test(spark, old, new, said):
    assert old in SHOP
    problems = tried(spark, SHOP.replace(old, new, 1))

    assert any(said in each for each in problems), problems
    assert not any("\n" in each for each in problems)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("      notes:\n", "      notices:\n", "there is no source notices; write orders, notes"),
        ("      noted:\n", "      notes:\n", "there is no output notes; write revenue, noted"),
        ("    given:", "    givn:", "did you mean given"),
        ("{check: revenue > 0", "{chek: revenue > 0", "outputs.revenue.expect: .* `chek`"),
    ],
)
def test_a_mistake_in_a_test_is_told_with_its_line(old, new, said):
    before, found, after = SHOP.rpartition(old)
    assert found
    with pytest.raises(InvalidPipeline, match=said):
        parse_pipeline(before + new + after)
