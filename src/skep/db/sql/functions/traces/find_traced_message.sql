-- find_traced_message: find the message of a trace by the key of its transaction id.
-- Returns the offset or null.
-- Locks   none.
-- Why     Most traces come from a consumer that holds the message, so leased ranges are searched
--         first; then the newest segments; then around other cursors, for messages just
--         acknowledged. All searches are bounded, because a partition may keep millions; other
--         messages are traced by message id.
create function skep.find_traced_message(p_partition_id bigint, p_key bytea) returns bigint
language sql stable as $$
  with around as materialized (
    select c.acked, c.leased from skep.cursor c
    where c.partition_id = p_partition_id
    order by c.leased is null, c.group_id
    limit 100
  )
  select coalesce(
    (select f.at
     from around c
     cross join lateral (
       select skep.find_offset(p_partition_id, c.acked, c.leased, p_key) as at offset 0
     ) f
     where c.leased is not null and f.at is not null
     limit 1),
    (select max(s.first + g)
     from (
       select n.first, n.last, n.keys
       from (
         select s.first, s.last, s.keys from skep.segment s
         where s.partition_id = p_partition_id
         order by s.first desc limit 1000
       ) n
       where position(p_key in n.keys) > 0
     ) s
     cross join lateral generate_series(0, (s.last - s.first)::integer) g
     where substr(s.keys, g * 16 + 1, 16) = p_key),
    (select f.at
     from around c
     cross join lateral (
       select skep.find_offset(p_partition_id, c.acked, null, p_key) as at offset 0
     ) f
     where c.leased is null and f.at is not null
     limit 1));
$$;
