-- take_partitions: assign claimed partitions to polls and read their messages.
-- Takes   per partition, in parallel arrays: p_poll (1-based, null: nothing to take), p_place (ctid
--         of the cursor), p_from (its new acked), p_to (the last offset taken), p_done (the
--         cursor's done) and p_rest_until (when a partition with nothing to take may have
--         something), the last two null if no partition has any; per poll: p_lease_id, p_auto_ack,
--         p_lease_s. p_counted: return counts.
-- Returns segments by poll and partition. The messages are (taken_from, taken_to] without
--         passed_over; delivery: deliveries of the first, this one included; is_individual: an ack
--         speaks for its own message; counts: as tally_range, null if all messages have as many
--         deliveries as the first and none has failed.
-- Locks   skep.partition rows for share, skipping locked ones; the caller holds the cursors.
-- Model   Delivery!Claim, WakeUp!MarkIdle, WakeUp!Take
-- Why     A partition may become idle only while no push is in flight on it, or that push's wake-up
--         would be lost. The share lock proves it; a partition that a push holds stays ready, and
--         the next poll looks again. Waiting here would be the one possible deadlock. Retention may
--         have moved the tail since the caller looked: what it deleted is not leased. Claims that
--         are acknowledged on delivery leave the counts alone, so they can be undone. Of a
--         conflating group only the newest message is delivered and counted (shift_deliveries). For
--         the laterals see push_segments.
create function skep.take_partitions(
  p_group skep.consumer_group, p_queue skep.queue, p_now timestamptz, p_poll integer[],
  p_partition_id bigint[], p_place tid[], p_from bigint[], p_to bigint[],
  p_done int8multirange[], p_rest_until timestamptz[], p_lease_id uuid[], p_auto_ack boolean[],
  p_lease_s integer[], p_counted boolean)
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea,
  passed_over bigint[], is_individual boolean, counts bigint[])
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
    set acked = i.acked,
        done = case when i.done is null then null
                    else nullif(i.done - int8multirange(int8range(null, i.acked + 1)), '{}') end,
        -- A partition set to rest remembers its last claim, which may yet be undone.
        leased_from = case when i.poll is null and c.leased is null and i.upto = c.acked
                           then c.leased_from else i.beyond end,
        leased = case when i.is_done then null else i.upto end,
        lease_id = case when i.poll is null and c.leased is null and i.upto = c.acked
                        then c.lease_id else p_lease_id[i.poll] end,
        delivered = case when i.is_done then c.delivered
                         else greatest(c.delivered, i.upto) end,
        deliveries = case when i.is_done then c.deliveries
                          when i.taken_from >= c.delivered then 1
                          when c.steps is null then c.deliveries + 1
                          else 1 + skep.delivery_count(
                            c.delivered, c.deliveries, c.steps, i.taken_from + 1) end,
        steps = case when i.is_done then c.steps
                     when i.taken_from >= c.delivered then
                       case when i.taken_from > i.acked then array[i.taken_from, 0, i.upto, 1] end
                     when c.steps is null and i.upto = c.delivered and i.taken_from <= i.acked
                       then null
                     else (
                       select s.steps from skep.shift_deliveries(
                         c.delivered, c.deliveries, c.steps, i.acked, i.taken_from, i.upto, 1) s)
                end,
        -- Looking at a held-back partition is neither a delivery nor an answer.
        unanswered = case when i.poll is null and i.beyond = c.acked then c.unanswered
                          when i.is_done then 0
                          when i.beyond > c.acked then 1 else c.unanswered + 1 end,
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
      select u.poll, u.place, d.upto, d.beyond, u.done, u.rest_until, d.is_done, p.name, r.is_idle,
             a.acked, case when v_is_conflated then d.upto - 1 else d.beyond end as taken_from
      from unnest(p_partition_id, p_place, p_poll, p_from, p_to, p_done, p_rest_until)
             u(id, place, poll, beyond, upto, done, rest_until)
      cross join lateral (
        select p.name, p.tail from skep.partition p where p.id = u.id offset 0
      ) p
      cross join lateral (
        select greatest(u.upto, p.tail - 1) as upto, greatest(u.beyond, p.tail - 1) as beyond,
               u.poll is null or p_auto_ack[u.poll] or u.upto < p.tail as is_done
      ) d
      -- Done messages may follow what a conflating group takes, or what retention deleted.
      cross join lateral (
        select case when u.done is null then t.acked
                    else (select n.acked from skep.pass_done(t.acked, u.done) n) end as acked
        from (select case when d.is_done then d.upto else d.beyond end as acked) t
      ) a
      -- Only auto-acked and empty partitions can be idle; leased ones are unfinished.
      left join lateral (
        select true as is_idle from skep.partition p
        where p.id = u.id and d.is_done and u.rest_until is null and p.head <= a.acked
        for share skip locked
      ) r on true
    ) i
    where c.ctid = i.place
    returning i.poll, c.partition_id, i.name, i.taken_from, i.upto, i.done,
              case when not i.is_done then c.deliveries
                   when i.taken_from >= c.delivered then 1
                   else 1 + skep.delivery_count(
                     c.delivered, c.deliveries, c.steps, i.taken_from + 1) end as delivery,
              case when i.poll is null or not p_counted
                        or c.failed_offset is null and (
                          i.taken_from + 1 = i.upto or i.taken_from >= c.delivered
                          or c.steps is null and i.upto <= c.delivered) then null
                   else skep.tally_range(c, i.taken_from, i.upto, i.is_done::integer) end as counts
  )
  select t.poll, t.partition_id, t.name, t.taken_from, t.upto, t.delivery,
         s.first, s.created_at, s.keys, s.body,
         case when t.done is not null then skep.offsets_in(t.done, t.taken_from, t.upto) end,
         v_is_individual, t.counts
  from taken t
  cross join lateral (
    select s.first, s.created_at, s.keys, s.body
    from skep.segment s
    where s.partition_id = t.partition_id
      and s.first <= t.upto
      and s.first >= coalesce(
        (select b.first from skep.segment b
         where b.partition_id = t.partition_id and b.first <= t.taken_from + 1
         order by b.first desc limit 1),
        t.taken_from + 1)
    order by s.first
    offset 0
  ) s
  where t.poll is not null;
end $$;
