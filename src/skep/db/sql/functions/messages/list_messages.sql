-- list_messages: a page of the messages in some segments, by segment and within each newest first.
-- Takes   p_partition_id, p_first: the segments; p_low, p_before: only offsets from the one and below
--         the other, null for no bound; p_status, p_key: only such messages, or null; p_preview: how
--         many characters of the data to return.
-- Returns at least one row. matched: the number of matches, skipped ones included. Unless the page
--         is empty: item (the segment's number, 1-based), head (the envelope without its data),
--         preview (null if it is encrypted or not asked for) and the standing as message_standing.
-- Why     The standing decides the page, and only then are bodies read, each once. Only the head of
--         an envelope is decoded: its data may be large or hold an escaped NUL. The clock is read
--         first: a volatile argument would keep message_standing from being inlined, twenty times
--         slower.
create function skep.list_messages(
  p_partition_id bigint[], p_first bigint[], p_low bigint[], p_before bigint[], p_status text,
  p_key bytea, p_preview integer, p_skip bigint, p_limit integer)
returns table (
  matched bigint, item integer, message_offset bigint, queue_name text, partition_name text,
  namespace text, task text, priority integer, created_at timestamptz, head json, preview text,
  status text, queue_status text, consumed_by integer, total_groups integer,
  lease_until timestamptz)
language sql stable as $$
  with clock as materialized (select skep.now() as now),
  hit as materialized (
    select u.item, s.partition_id, s.first, s.queue_id, s.created_at, m.*
    from unnest(p_partition_id, p_first, p_low, p_before) with ordinality
           u(partition_id, first, low, before, item)
    cross join clock k
    cross join lateral (
      select s.partition_id, s.first, s.last, s.queue_id, s.created_at,
             case when p_key is not null then s.keys end as keys
      from skep.segment s
      where s.partition_id = u.partition_id and s.first = u.first offset 0
    ) s
    cross join lateral skep.message_standing(
      s.partition_id, greatest(u.low, s.first), least(u.before - 1, s.last), k.now) m
    where (p_status is null or m.status = p_status)
      and (p_key is null or substr(s.keys, (m.message_offset - s.first)::integer * 16 + 1, 16)
                            = p_key)
      and not exists (
        select from skep.deleted_message x
        where x.partition_id = s.partition_id and x.message_offset = m.message_offset)
  ),
  page as materialized (
    select * from hit h order by h.item, h.message_offset desc limit p_limit offset p_skip
  ),
  head as (
    select b.partition_id, b.first, b.first + e.position - 1 as message_offset,
           h.text || '}' as head,
           case when p_preview > 0 and h.text not like '{"enc":%' then
             substr(e.envelope::text, length(h.text) + 9,
                    least(p_preview, length(e.envelope::text) - length(h.text) - 9)) end as preview
    from (
      select distinct p.partition_id, p.first from page p
    ) b
    cross join lateral (
      select s.body from skep.segment s
      where s.partition_id = b.partition_id and s.first = b.first offset 0
    ) s
    cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
      with ordinality e(envelope, position)
    cross join lateral (select split_part(e.envelope::text, ',"data":', 1) as text) h
    where json_typeof(e.envelope) = 'object'
  )
  select n.matched, p.item::integer, p.message_offset, q.name, l.name, q.namespace, q.task,
         q.priority, p.created_at, h.head::json, h.preview, p.status, p.queue_status, p.consumed_by,
         p.total_groups, p.lease_until
  from (select count(*) as matched from hit) n
  left join (
    page p
    join head h on h.partition_id = p.partition_id and h.message_offset = p.message_offset
    join skep.queue q on q.id = p.queue_id
    join skep.partition l on l.id = p.partition_id
  ) on true
  order by p.item, p.message_offset desc;
$$;
