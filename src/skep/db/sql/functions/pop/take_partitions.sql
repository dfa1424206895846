-- take_partitions: assign claimed partitions to polls and read their messages.
-- Takes   p_group, p_queue; p_now; per partition, in parallel arrays: p_poll (1-based, null:
--         nothing to take), p_partition_id, p_place (ctid of the cursor), p_from (its new acked),
--         p_to (the last offset taken), p_delivery (deliveries of the first message, this one
--         included), p_done (the cursor's done) and p_rest_until (when a partition with nothing to
--         take may have something), the last two null if no partition has any; per poll:
--         p_lease_id, p_auto_ack, p_lease_s.
-- Returns segments by poll and partition: poll, partition_id, partition_name, taken_from and
--         taken_to (the messages are (taken_from, taken_to]), delivery, first, created_at, keys,
--         body, passed_over (offsets in the range not to deliver, or null), is_individual (an ack
--         completes only its own message).
-- Locks   skep.partition rows for share, skipping locked ones; the caller holds the cursors, so
--         they stay in place.
-- Why     A partition may become idle only while no push is in flight on it, or that push's wake-up
--         would be lost. The share lock proves it; a partition that a push holds stays ready, and
--         the next poll looks again. Waiting here would be the one possible deadlock. Retention may
--         have moved the tail since the caller looked: what it deleted is not leased. For the
--         laterals see push_segments.
create function skep.take_partitions(
  p_group skep.consumer_group, p_queue skep.queue, p_now timestamptz, p_poll integer[],
  p_partition_id bigint[], p_place tid[], p_from bigint[], p_to bigint[], p_delivery integer[],
  p_done int8multirange[], p_rest_until timestamptz[], p_lease_id uuid[], p_auto_ack boolean[],
  p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean)
language plpgsql as $$
#variable_conflict use_column
declare
  v_lease_s constant integer := coalesce(nullif(p_queue.lease_time_s, 0), 60);
  v_is_individual constant boolean := p_queue.ack_mode = 'individual';
  v_is_conflated constant boolean := coalesce(p_group.conflation, false);
begin
  return query
  with taken as (
    update skep.cursor c
    set acked = case when i.is_done then i.upto else i.beyond end,
        done = case when i.done is null then null
                    else nullif(i.done - int8multirange(int8range(
                      null, case when i.is_done then i.upto else i.beyond end + 1)), '{}') end,
        -- A partition set to rest remembers its last claim, which may yet be undone.
        leased_from = case when i.poll is null and c.leased is null and i.upto = c.acked
                           then c.leased_from else i.beyond end,
        leased = case when i.is_done then null else i.upto end,
        lease_id = case when i.poll is null and c.leased is null and i.upto = c.acked
                        then c.lease_id else p_lease_id[i.poll] end,
        -- Looking at a held-back partition is neither a delivery nor an answer.
        deliveries = case when i.poll is null and i.beyond = c.acked then c.deliveries
                          when i.is_done then 0 else i.delivery end,
        unanswered = case when i.poll is null and i.beyond = c.acked then c.unanswered
                          when i.is_done then 0
                          when i.delivery = 1 then 1 else c.unanswered + 1 end,
        nacked = null,
        retry_at = null,
        available_at = case
          when not i.is_done
            then p_now + make_interval(secs => coalesce(nullif(p_lease_s[i.poll], 0), v_lease_s))
          when i.rest_until is not null then i.rest_until
          when i.is_idle then null
          -- Behind all partitions that were ready before this call: longest waiting first.
          else p_now + interval '1 microsecond'
        end
    from (
      select u.poll, u.place, d.upto, d.beyond, u.delivery, u.done, u.rest_until, d.is_done,
             p.name, r.is_idle
      from unnest(p_partition_id, p_place, p_poll, p_from, p_to, p_delivery, p_done, p_rest_until)
             u(id, place, poll, beyond, upto, delivery, done, rest_until)
      cross join lateral (
        select p.name, p.tail from skep.partition p where p.id = u.id offset 0
      ) p
      cross join lateral (
        select greatest(u.upto, p.tail - 1) as upto, greatest(u.beyond, p.tail - 1) as beyond,
               u.poll is null or p_auto_ack[u.poll] or u.upto < p.tail as is_done
      ) d
      -- Only auto-acked and empty partitions can be idle; leased ones are unfinished.
      left join lateral (
        select true as is_idle from skep.partition p
        where p.id = u.id and d.is_done and u.rest_until is null and p.head <= d.upto
        for share skip locked
      ) r on true
    ) i
    where c.ctid = i.place
    returning i.poll, c.partition_id, i.name,
              case when v_is_conflated then i.upto - 1 else i.beyond end as beyond, i.upto,
              i.delivery, i.done
  )
  select t.poll, t.partition_id, t.name, t.beyond, t.upto, t.delivery,
         s.first, s.created_at, s.keys, s.body,
         case when t.done is not null then skep.offsets_in(t.done, t.beyond, t.upto) end,
         v_is_individual
  from taken t
  cross join lateral (
    select s.first, s.created_at, s.keys, s.body
    from skep.segment s
    where s.partition_id = t.partition_id
      and s.first <= t.upto
      and s.first >= coalesce(
        (select b.first from skep.segment b
         where b.partition_id = t.partition_id and b.first <= t.beyond + 1
         order by b.first desc limit 1),
        t.beyond + 1)
    order by s.first
    offset 0
  ) s
  where t.poll is not null;
end $$;
