-- find_offset: find a message in a partition by the key of its transaction id.
-- Takes   p_partition_id; p_acked, p_leased: the cursor's position and the end of its lease, if
--         any; p_key.
-- Returns the offset or null. Searches the leased range first, then recently finished messages, so
--         that a repeated ack is recognised.
-- Locks   none.
-- Why     The broker that served the poll remembers its offsets; this serves acks that reach
--         another broker. Both searches are bounded, because a partition may keep millions of
--         messages.
create function skep.find_offset(
  p_partition_id bigint, p_acked bigint, p_leased bigint, p_key bytea) returns bigint
language sql stable as $$
  select coalesce(
    (select h.at
     from (
       select s.first + g as at, substr(s.keys, g * 16 + 1, 16) as key
       from (
         select s.first, s.last, s.keys from skep.segment s
         where s.partition_id = p_partition_id
           and s.first <= coalesce(p_leased, p_acked + 10000)
           and s.first >= coalesce(
             (select b.first from skep.segment b
              where b.partition_id = p_partition_id and b.first <= p_acked + 1
              order by b.first desc limit 1), p_acked + 1)
           and position(p_key in s.keys) > 0
       ) s
       cross join lateral generate_series(0, (s.last - s.first)::integer) g
     ) h
     where h.key = p_key and h.at > p_acked
     order by h.at limit 1),
    (select h.at
     from (
       select s.first + g as at, substr(s.keys, g * 16 + 1, 16) as key
       from (
         select * from (
           select s.first, s.last, s.keys from skep.segment s
           where s.partition_id = p_partition_id and s.first <= p_acked
           order by s.first desc limit 200
         ) recent
         where position(p_key in recent.keys) > 0
       ) s
       cross join lateral generate_series(0, (s.last - s.first)::integer) g
     ) h
     where h.key = p_key and h.at <= p_acked
     order by h.at desc limit 1));
$$;
