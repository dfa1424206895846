-- release_claims: take back claims that never reached their consumers.
-- Returns the number of partitions released.
-- Locks   as lock_cursors.
-- Model   Delivery!Release
-- Why     A client that hung up during its poll must not block the partition until the lease
--         expires, and its messages were not delivered. An auto-acked claim is undone too, unless
--         the cursor moved since: the ack that ends a claim clears leased_from, so that it is never
--         taken back. Everything in an auto-acked range comes again, also what was done ahead of
--         the cursor, but not what was deleted meanwhile. A back-off goes on.
create function skep.release_claims(
  p_partition_id bigint[], p_group_id integer[], p_lease_id uuid[]) returns integer
language plpgsql as $$
declare
  v_now constant timestamptz := skep.now();
  v_count integer;
begin
  perform skep.lock_cursors(p_partition_id, p_group_id);

  update skep.cursor c
  set acked = k.acked,
      done = k.done,
      leased = null,
      lease_id = null,
      (delivered, deliveries, steps) = (
        select s.delivered, s.deliveries, s.steps from skep.shift_deliveries(
          c.delivered, c.deliveries, c.steps, c.acked, c.acked, c.leased, -1) s
        where c.leased is not null
        union all
        select c.delivered, c.deliveries, c.steps where c.leased is null),
      unanswered = greatest(c.unanswered - 1, 0),
      nacked = null,
      retry_at = null,
      available_at = greatest(v_now, c.retry_at)
  from unnest(p_partition_id, p_group_id, p_lease_id) i(partition_id, group_id, lease_id)
  cross join lateral (
    select k.ctid as place, d.acked, d.done
    from skep.cursor k
    cross join lateral skep.pass_done(
      case when k.leased is null then k.leased_from else k.acked end,
      coalesce(k.done, '{}') + coalesce(
        (select range_agg(int8range(d.message_offset, d.message_offset, '[]'))
         from skep.deleted_message d
         where k.leased is null and d.partition_id = k.partition_id
           and d.message_offset > k.leased_from and d.message_offset <= k.acked), '{}')) d
    where k.partition_id = i.partition_id and k.group_id = i.group_id
      and k.lease_id = i.lease_id and (k.leased is not null or k.leased_from is not null)
    offset 0
  ) k
  where c.ctid = k.place;
  get diagnostics v_count = row_count;
  return v_count;
end $$;
