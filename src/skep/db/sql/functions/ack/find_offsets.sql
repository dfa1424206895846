-- find_offsets: find the messages of a partition with the key of a transaction id.
-- Takes   p_acked, p_leased: the cursor's position and the end of its lease, if any.
-- Returns the offsets of unfinished ones under lease, or near the cursor without a lease, ascending;
--         if there is none, the newest of the recently finished ones, so that a repeated ack is
--         recognised; null if there is none either.
-- Locks   none.
-- Why     The broker that served the poll remembers its offsets; this serves acks that reach
--         another broker, and keys that occur twice. Both searches are bounded: a partition may
--         keep millions.
create function skep.find_offsets(
  p_partition_id bigint, p_acked bigint, p_leased bigint, p_key bytea) returns bigint[]
language sql stable as $$
  select coalesce(
    (select array_agg(s.first + k.place order by s.first, k.place)
     from (
       select s.first, s.keys from skep.segment s
       where s.partition_id = p_partition_id
         and s.first <= coalesce(p_leased, p_acked + 10000)
         and s.first >= coalesce(
           (select b.first from skep.segment b
            where b.partition_id = p_partition_id and b.first <= p_acked + 1
            order by b.first desc limit 1), p_acked + 1)
         and position(p_key in s.keys) > 0
     ) s
     cross join lateral skep.key_places(s.keys, p_key) k(place)
     where s.first + k.place > p_acked
       and s.first + k.place <= coalesce(p_leased, p_acked + 10000)),
    (select array[s.first + k.place]
     from (
       select * from (
         select s.first, s.keys from skep.segment s
         where s.partition_id = p_partition_id and s.first <= p_acked
         order by s.first desc limit 200
       ) recent
       where position(p_key in recent.keys) > 0
     ) s
     cross join lateral skep.key_places(s.keys, p_key) k(place)
     where s.first + k.place <= p_acked
     order by s.first + k.place desc limit 1));
$$;
