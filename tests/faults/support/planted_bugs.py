"""Builds of Skep with a bug, which the checker must notice: SQL functions of a test's database.

Each is the real function with one thing taken out. Who plants one restores the real text after.
"""

from contextlib import asynccontextmanager

from skep.db.schema.catalog import bundled

PARTITION_SEQUENCES = """
do $$
declare
  v_partition record;
begin
  for v_partition in select p.id, p.head from skep.partition p loop
    execute format('drop sequence if exists public.partition_%s', v_partition.id); execute
    format('create sequence public.partition_%s start %s', v_partition.id, v_partition.head + 1);
  end loop;
end $$;
"""

UNLOCKED_PUSH = """
create or replace function skep.push_segments(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[],
  p_guaranteed_since timestamptz[], p_keys bytea[], p_body bytea[], p_resolve boolean,
  p_queue_id integer[] default null, p_version integer[] default null,
  p_row_to integer[] default null, p_row_end integer[] default null)
returns table (
  partition_id bigint, first bigint, created_at timestamptz,
  duplicate_index integer[], duplicate_offset bigint[],
  gap_first bigint, gap_keys bytea, gap_created_at timestamptz)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_first bigint;
  v_last bigint;
begin
  for i in 1 .. cardinality(p_partition_id) loop
    perform pg_advisory_lock(7, p_partition_id[i]::integer);
    v_first := nextval(format('public.partition_%s', p_partition_id[i]));
    v_last := setval(format('public.partition_%s', p_partition_id[i]), v_first + p_count[i] - 1);
    perform pg_advisory_unlock(7, p_partition_id[i]::integer);
    insert into skep.segment (partition_id, first, last, queue_id, created_at, keys, body)
    select p.id, v_first, v_last, p.queue_id, v_now, p_keys[i], p_body[i]
    from skep.partition p where p.id = p_partition_id[i];
    perform pg_sleep(case when random() < 0.2 then 0.3 else 0 end);
    update skep.partition p set head = greatest(p.head, v_last), pushed_at = v_now
    where p.id = p_partition_id[i];
    partition_id := p_partition_id[i];
    first := v_first;
    created_at := v_now;
    return next;
  end loop;
  perform skep.wake_idle(p_partition_id, v_now);
end $$;

create or replace function skep.push_guaranteed(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[], p_keys bytea[],
  p_body bytea[], p_queue_id integer[], p_version integer[], p_guaranteed_since timestamptz,
  p_row_to integer[] default null, p_row_end integer[] default null,
  p_wakes boolean default true)
returns table (partition_id bigint, first bigint, created_at timestamptz)
language sql as 'select null::bigint, null::bigint, null::timestamptz where false';

create or replace function skep.push_to_poll(
  p_partition_id bigint, p_count integer, p_guaranteed_to bigint, p_keys bytea, p_body bytea,
  p_version integer, p_guaranteed_since timestamptz, p_group_id integer, p_lease_id uuid,
  p_batch integer, p_lease_s integer)
returns table (
  first bigint, created_at timestamptz, taken_to bigint, is_individual boolean, is_only boolean)
language sql as
'select null::bigint, null::timestamptz, null::bigint, null::boolean, null::boolean where false';

create or replace function skep.push_contested(
  p_partition_id bigint[], p_count integer[], p_guaranteed_to bigint[], p_keys bytea[],
  p_body bytea[], p_queue_id integer[], p_version integer[], p_guaranteed_since timestamptz,
  p_row_to integer[] default null, p_row_end integer[] default null)
returns table (partition_id bigint, first bigint, created_at timestamptz, keys bytea)
language sql as 'select null::bigint, null::bigint, null::timestamptz, null::bytea where false';
"""
"""Offsets are taken before, and not under, the lock of their partition: a reader may pass one that
another transaction has taken and not committed yet. For partitions of `provide_partitions` only."""


async def provide_partitions(sql, queue, partitions):
    """Create the partitions of a queue before anything is pushed, and what counts in them."""
    query = "select count(*) from skep.provision_partitions($1, $2)"
    await sql.fetch(query, [queue] * len(partitions), list(partitions))
    await sql.execute(PARTITION_SEQUENCES)


def _without(function, part, instead):
    text = _text_of(function)
    assert text.count(part) == 1, f"{function} does not say {part!r} once any more"
    return text.replace(part, instead)


def shared_lease():
    """A claim that now and then leaves its partitions ready for others."""
    lease = "coalesce(nullif(p_lease_s[i.poll], 0), v_lease_s)"
    return _without("take_partitions", lease, f"case when random() < 0.2 then 0 else {lease} end")


def forgotten_ack():
    """An ack that is confirmed and moves no cursor."""
    return "".join(
        _without(function, f"set acked = {upto},", "set acked = c.acked,")
        for function, upto in (("complete_lease", "p_offset"), ("complete_leases", "i.upto"))
    )


def _text_of(function):
    return next(each.text for each in bundled.functions() if each.name == function)


@asynccontextmanager
async def planted(sql, text, *functions):
    """Replace these functions in a database, and restore them in the end."""
    await sql.execute(_replacing(text))
    try:
        yield
    finally:
        for function in functions:
            await sql.execute(_replacing(_text_of(function)))


def _replacing(text):
    return text.replace("create function skep.", "create or replace function skep.")
