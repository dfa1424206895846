import pytest

from tests.sql.support.enqueued import stored


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ("""'{"b": 1, "a": "\\u0000"}'""", '{"b": 1, "a": "\\u0000"}'),
        ("jsonb_build_object('b', 1, 'a', 2)", '{"a": 2, "b": 1}'),
        ("""'{"b":1,"a":2}'::json""", '{"b":1,"a":2}'),
        ("to_json('plain'::text)", '"plain"'),
        ("'[1]'::text", "[1]"),
    ],
)
async def test_a_payload_may_be_json_or_jsonb_or_text_or_a_literal(log, payload, text):
    await log.value(f"select skep.push('hive', 'a', {payload})")

    assert await log.value("select payload::text from skep.message") == text


async def test_arguments_can_be_named_and_left_out(log):
    await log.value("select skep.push(queue => 'hive', partition => null, payload => '1')")
    await log.value(
        "select skep.push('hive', 'a', '1', transaction_id => 'x', headers => '{\"h\": 1}',"
        " trace_id => '0198c0de-0000-7000-8000-000000000001', ttl_s => 60)"
    )

    assert await stored(log) == [
        ("Default", 1, (await stored(log))[0][2]),
        ("a", 1, "x"),
    ]
    row = await log.row("select * from skep.message where transaction_id = 'x'")
    assert str(row["trace_id"]) == "0198c0de-0000-7000-8000-000000000001"
    body = await log.value("select convert_from(body, 'UTF8') from skep.segment order by xid desc")
    assert '"headers":{"h":1},"data":1}' in body
    assert body.startswith('[{"expiresAt":"2026-01-01T12:01:00.000Z",')


async def test_a_repeated_id_is_answered_with_the_first_message(log):
    first = await log.value("select skep.push('hive', 'a', '1', 'x')")

    assert await log.value("select skep.push('hive', 'a', '2', 'x')") == first


async def test_a_trigger_of_the_user_can_push(log):
    await log.execute(
        """
        create temp table orders (id int);
        create function pg_temp.tell() returns trigger language plpgsql as $$
        begin
          perform skep.push('hive', 'a', to_jsonb(new), 'order ' || new.id);
          return null;
        end $$;
        create trigger tell after insert on orders for each row execute function pg_temp.tell();
        insert into orders values (7), (8);
        """
    )

    assert await stored(log) == [("a", 1, "order 7"), ("a", 2, "order 8")]
    await log.execute("drop table orders")
