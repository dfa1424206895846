/*
ack_messages: record what consumers did with the messages they hold.

Takes   per ack, in parallel arrays: p_partition_id, p_group (name), p_lease_id (null: unfenced, as
        the wire allows), p_offset (null: find it by p_key in the range under lease), p_key,
        p_status: completed | failed | retry | dlq, p_error.
Returns one row per ack: item (1-based), outcome, queue_id, queue_name, partition_name,
        lease_released, has_more (the lane was left ready or backing off). Outcomes: acked, noop (was done already), redelivered (completed, but above
        a message that failed in this call), retried, dead_lettered, lease_lost, not_found,
        already_done (a nack of what was done before). No row: no such partition or group.
Locks   skep.cursor rows in (partition_id, group_id) order, waiting; then skep.partition rows for
        share, skipping locked ones.
Why     The cursor only moves forward. A completed ack completes everything before it, except that
        the lowest failed message of the call stops it: nothing that failed is ever passed. A
        stale lease is an outcome, not an error: the other acks of the call belong to other
        clients.
*/
create function skep.ack_messages(
  p_partition_id bigint[], p_group text[], p_lease_id uuid[], p_offset bigint[], p_key bytea[],
  p_status text[], p_error text[])
returns table (
  item integer, outcome text, queue_id integer, queue_name text, partition_name text,
  lease_released boolean, has_more boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_lane record;
begin
  for v_lane in
    select c.partition_id, c.group_id, q.id as queue_id, q.name as queue_name, p.name as partition_name, i.items
    from (
      select u.partition_id, u.group_name, array_agg(u.ord::integer) as items
      from unnest(p_partition_id, p_group) with ordinality u(partition_id, group_name, ord)
      group by u.partition_id, u.group_name
    ) i
    join skep.partition p on p.id = i.partition_id
    join skep.queue q on q.id = p.queue_id
    join skep.consumer_group g on g.queue_id = p.queue_id and g.name = i.group_name
    join skep.cursor c on c.partition_id = p.id and c.group_id = g.id
    order by c.partition_id, c.group_id
    for no key update of c
  loop
    return query
    select a.item, a.outcome, v_lane.queue_id, v_lane.queue_name, v_lane.partition_name,
           a.lease_released, a.has_more
    from skep.ack_lane(
      v_lane.partition_id, v_lane.group_id, v_lane.items, p_lease_id, p_offset, p_key, p_status,
      p_error, v_now) a;
  end loop;
end $$;
