/*
ack_messages: record what consumers did with the messages they hold.

Takes   per ack, in parallel arrays: p_partition_id, p_group (name), p_lease_id (null: unfenced, as
        the wire allows), p_offset (null: find it by p_key in the range under lease), p_key,
        p_status: completed | failed | retry | dlq, p_error.
Returns one row per ack: item (1-based), outcome, queue_id, queue_name, partition_name,
        lease_released, has_more (the lane was left ready or backing off). Outcomes: acked, noop
        (was done already), redelivered (completed, but above a message that failed in this call),
        retried, dead_lettered, lease_lost, not_found, already_done (a nack of what was done
        before). No row: no such partition or group.
Locks   skep.cursor rows in (partition_id, group_id) order, waiting; then skep.partition rows for
        share, skipping locked ones.
Why     The cursor only moves forward. A completed ack completes everything before it, except that
        the lowest failed message of the call stops it: nothing that failed is ever passed. A
        stale lease is an outcome, not an error: the other acks of the call belong to other
        clients. Nearly all acks complete a range under a valid lease, one per lane: those are
        done together in complete_leases; whatever it leaves goes lane by lane.
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
  v_now timestamptz;
  v_item integer[];
  v_partition_id bigint[];
  v_group_id integer[];
  v_queue_id integer[];
  v_queue_name text[];
  v_partition_name text[];
  v_done integer[];
  v_released boolean[];
  v_has_more boolean[];
  v_lane record;
begin
  select array_agg(u.ord::integer), array_agg(p.id), array_agg(g.id), array_agg(q.id),
         array_agg(q.name), array_agg(p.name)
  into v_item, v_partition_id, v_group_id, v_queue_id, v_queue_name, v_partition_name
  from unnest(p_partition_id, p_group) with ordinality u(partition_id, group_name, ord)
  join skep.partition p on p.id = u.partition_id
  join skep.queue q on q.id = p.queue_id
  join skep.consumer_group g on g.queue_id = p.queue_id and g.name = u.group_name;
  if v_item is null then
    return;
  end if;

  perform 1
  from (select distinct u.* from unnest(v_partition_id, v_group_id) u(partition_id, group_id)) i
  join skep.cursor c on c.partition_id = i.partition_id and c.group_id = i.group_id
  order by c.partition_id, c.group_id
  for no key update of c;
  v_now := skep.now();

  select array_agg(d.item), array_agg(d.lease_released), array_agg(d.has_more)
  into v_done, v_released, v_has_more
  from skep.complete_leases(
    v_item, v_partition_id, v_group_id, p_lease_id, p_offset, p_status, v_now) d;
  if v_done is not null then
    return query
    select d.item, 'acked', i.queue_id, i.queue_name, i.partition_name, d.lease_released,
           d.has_more
    from unnest(v_done, v_released, v_has_more) d(item, lease_released, has_more)
    join unnest(v_item, v_queue_id, v_queue_name, v_partition_name)
           i(item, queue_id, queue_name, partition_name) on i.item = d.item;
    if cardinality(v_done) = cardinality(v_item) then
      return;
    end if;
  end if;

  for v_lane in
    select i.partition_id, i.group_id, i.queue_id, i.queue_name, i.partition_name,
           array_agg(i.item) as items
    from unnest(v_item, v_partition_id, v_group_id, v_queue_id, v_queue_name, v_partition_name)
           i(item, partition_id, group_id, queue_id, queue_name, partition_name)
    where v_done is null or i.item <> all(v_done)
    group by 1, 2, 3, 4, 5
  loop
    return query
    select a.item, a.outcome, v_lane.queue_id, v_lane.queue_name, v_lane.partition_name,
           a.lease_released, a.has_more
    from skep.ack_lane(
      v_lane.partition_id, v_lane.group_id, v_lane.items, p_lease_id, p_offset, p_key, p_status,
      p_error, v_now) a;
  end loop;
end $$;
