-- find_traced_message: find the message of a trace by the key of its transaction id.
-- Returns the offset or null.
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
       select (skep.find_offsets(p_partition_id, c.acked, c.leased, p_key))[1] as at offset 0
     ) f
     where c.leased is not null and f.at is not null
     limit 1),
    skep.find_message(p_partition_id, p_key, null, 1000),
    (select f.at
     from around c
     cross join lateral (
       select (skep.find_offsets(p_partition_id, c.acked, null, p_key))[1] as at offset 0
     ) f
     where c.leased is null and f.at is not null
     limit 1));
$$;
