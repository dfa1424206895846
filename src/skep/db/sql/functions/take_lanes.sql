/*
take_lanes: give claimed lanes to the polls they were assigned to, and read their messages.

Takes   p_group_id, p_now; per lane, in parallel arrays: p_poll (1-based, null for a lane that
        holds nothing), p_partition_id, p_place (of the cursor), p_to (the last offset taken),
        p_delivery (how often the first message was delivered, this time included); per poll:
        p_lease_id, p_auto_ack, p_lease_s.
Returns the segments taken, by poll and lane: poll, partition_id, partition_name, taken_from and
        taken_to (the messages are (taken_from, taken_to]), delivery, first, created_at, keys,
        body.
Locks   the cursors are locked by the caller, so they stay in their places; skep.partition rows
        for share, skipping locked ones.
Why     A lane left with nothing to read may be marked idle only while no push is in flight on it,
        or that push's wake-up is lost. The share lock proves it; a lane that a push holds stays
        ready and the next poll looks again. Waiting here would be the one possible deadlock.
        For the laterals see push_segments.
*/
create function skep.take_lanes(
  p_group_id integer, p_now timestamptz, p_poll integer[], p_partition_id bigint[],
  p_place tid[], p_to bigint[], p_delivery integer[], p_lease_id uuid[], p_auto_ack boolean[],
  p_lease_s integer[])
returns table (
  poll integer, partition_id bigint, partition_name text, taken_from bigint, taken_to bigint,
  delivery integer, first bigint, created_at timestamptz, keys bytea, body bytea)
language plpgsql as $$
#variable_conflict use_column
begin
  return query
  with taken as (
    update skep.cursor c
    set acked = case when i.is_done then i.upto else greatest(c.acked, i.tail - 1) end,
        leased_from = greatest(c.acked, i.tail - 1),
        leased = case when i.is_done then null else i.upto end,
        lease_id = p_lease_id[i.poll],
        deliveries = case when i.is_done then 0 else i.delivery end,
        available_at = case
          when not i.is_done
            then p_now + make_interval(
              secs => coalesce(nullif(p_lease_s[i.poll], 0), nullif(i.lease_time_s, 0), 60))
          when i.is_idle then null
          -- Behind all lanes that were ready before this call: longest waiting first.
          else p_now + interval '1 microsecond'
        end
    from (
      select u.poll, u.place, u.upto, u.delivery, d.is_done, p.name, p.tail, q.lease_time_s,
             r.is_idle
      from unnest(p_partition_id, p_place, p_poll, p_to, p_delivery)
             u(id, place, poll, upto, delivery)
      cross join lateral (select u.poll is null or p_auto_ack[u.poll] as is_done) d
      cross join lateral (
        select p.name, p.tail from skep.partition p where p.id = u.id offset 0
      ) p
      -- Leased lanes are not finished yet; only acknowledged and empty ones can be idle.
      left join lateral (
        select true as is_idle from skep.partition p
        where p.id = u.id and d.is_done and p.head <= u.upto
        for share skip locked
      ) r on true
      cross join (
        select q.lease_time_s from skep.consumer_group g join skep.queue q on q.id = g.queue_id
        where g.id = p_group_id offset 0
      ) q
    ) i
    where c.ctid = i.place
    returning i.poll, c.partition_id, i.name, c.leased_from, i.upto, i.delivery
  )
  select t.poll, t.partition_id, t.name, t.leased_from, t.upto, t.delivery,
         s.first, s.created_at, s.keys, s.body
  from taken t
  cross join lateral (
    select s.first, s.created_at, s.keys, s.body
    from skep.segment s
    where s.partition_id = t.partition_id
      and s.first <= t.upto
      and s.first >= coalesce(
        (select b.first from skep.segment b
         where b.partition_id = t.partition_id and b.first <= t.leased_from + 1
         order by b.first desc limit 1),
        t.leased_from + 1)
    order by s.first
    offset 0
  ) s
  where t.poll is not null;
end $$;
