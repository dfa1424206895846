-- find_message: find the newest message of a partition with a transaction id.
-- Takes   p_key: of the transaction id.
-- Returns its offset or null; if the log does not hold it, that of a dead letter.
-- Why     There is no index by transaction id. The walk goes backwards, because recent messages are
--         asked for most, and is bounded: a partition may keep millions.
create function skep.find_message(
  p_partition_id bigint, p_key bytea, p_transaction_id text, p_segments_max integer)
returns bigint
language sql stable as $$
  select coalesce(
    (select s.first + k.place
     from (
       select r.first, r.keys
       from (
         select s.first, s.keys from skep.segment s
         where s.partition_id = p_partition_id
         order by s.first desc limit p_segments_max
       ) r
       where position(p_key in r.keys) > 0
     ) s
     cross join lateral skep.key_places(s.keys, p_key) k(place)
     order by 1 desc limit 1),
    (select max(d.message_offset) from skep.dead_letter d
     where d.partition_id = p_partition_id and d.transaction_id = p_transaction_id));
$$;
