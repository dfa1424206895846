-- sample_cursors: sample cursors of large groups.
-- Takes   p_blocks: how many blocks of the table to read.
-- Returns a sum over the sample times the weight estimates the sum over all partitions.
-- Why     Blocks at equal distances include partitions of any age, give the same answer twice, and
--         cost the same for a thousand partitions and a million. A ctid range is read directly; no
--         index leads to every n-th partition.
create function skep.sample_cursors(p_group_id integer[], p_blocks integer)
returns table (
  group_id integer, partition_id bigint, acked bigint, done int8multirange,
  available_at timestamptz, weight double precision)
language sql stable as $$
  select c.*, greatest(t.blocks / p_blocks, 1)
  from (
    select pg_relation_size('skep.cursor')::double precision
           / current_setting('block_size')::integer as blocks
  ) t
  cross join lateral (
    select trunc(n * greatest(t.blocks / p_blocks, 1))::bigint as block
    from generate_series(0, least(t.blocks, p_blocks)::integer - 1) n
  ) b
  cross join lateral (
    select c.group_id, c.partition_id, c.acked, c.done, c.available_at
    from skep.cursor c
    where c.ctid >= format('(%s,0)', b.block)::tid and c.ctid < format('(%s,0)', b.block + 1)::tid
      and c.group_id = any(p_group_id)
    offset 0
  ) c;
$$;
