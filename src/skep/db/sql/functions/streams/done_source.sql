-- done_source: tell whether a group is done with the message that a stream cycle acknowledges.
-- Takes   p_offset (null: the message with the key p_key, as ack_messages).
-- Returns the name of its queue; null if the group is not done with it, or does not exist.
-- Why     A cycle whose pushes are refused may be the repetition of one that was committed before
--         the rules of its sink changed. Only then this is asked.
create function skep.done_source(
  p_partition_id bigint, p_group text, p_offset bigint, p_key bytea) returns text
language sql stable as $$
  select q.name
  from skep.partition p
  join skep.queue q on q.id = p.queue_id
  join skep.consumer_group g on g.queue_id = p.queue_id and g.name = p_group
  join skep.cursor c on c.partition_id = p.id and c.group_id = g.id
  cross join lateral (
    select coalesce(p_offset, f.places[cardinality(f.places)]) as at
    from (select skep.find_offsets(p.id, c.acked, c.leased, p_key) as places) f
  ) o
  where p.id = p_partition_id
    and (o.at <= c.acked or c.done @> o.at);
$$;
