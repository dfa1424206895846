/*
find_traced_message: the offset of the message a trace speaks of, by the key of its transaction id.

Takes   p_partition_id, p_key.
Returns the offset, or null.
Locks   none.
Why     A trace mostly comes from a consumer that holds the message, so what is under lease is
        searched first; then the newest segments; then what lies around the other cursors, for
        consumers that have just acknowledged. All searches are bounded, because a lane may keep
        millions of messages; a message out of their reach is traced by its message id.
*/
create function skep.find_traced_message(p_partition_id bigint, p_key bytea) returns bigint
language plpgsql stable as $$
declare
  v_offset bigint;
  v_is_leased boolean;
begin
  foreach v_is_leased in array array[true, false] loop
    select f.at into v_offset
    from (
      select c.acked, c.leased from skep.cursor c
      where c.partition_id = p_partition_id and (c.leased is not null) = v_is_leased
      order by c.group_id
      limit 100
    ) c
    cross join lateral (
      select skep.find_offset(p_partition_id, c.acked, c.leased, p_key) as at offset 0
    ) f
    where f.at is not null
    limit 1;
    exit when v_offset is not null or not v_is_leased;

    select max(s.first + g) into v_offset
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
    where substr(s.keys, g * 16 + 1, 16) = p_key;
    exit when v_offset is not null;
  end loop;
  return v_offset;
end $$;
