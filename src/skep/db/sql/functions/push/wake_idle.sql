-- wake_idle: make idle cursors of pushed partitions ready.
-- Takes   p_partition_id: ascending.
-- Locks   idle skep.cursor rows for no key update, in (partition_id, group_id) order; the caller
--         holds the partitions that matter: waking another one costs a poll, nothing else.
-- Model   WakeUp!LookAtCursor
-- Why     Every way to push ends with it. Locked cursors stay in place: ctid finds them. Where the
--         queue holds messages back, they become ready when the first may be read.
create function skep.wake_idle(p_partition_id bigint[], p_now timestamptz) returns void
language plpgsql as $$
declare
  v_idle tid[];
  v_hold_s integer[];
begin
  select array_agg(k.place), array_agg(q.hold_s) into v_idle, v_hold_s
  from unnest(p_partition_id) i(id)
  cross join lateral (
    select k.ctid as place, k.queue_id from skep.cursor k
    where k.partition_id = i.id and k.available_at is null
    order by k.group_id
    for no key update
  ) k
  cross join lateral (
    select greatest(q.delayed_processing_s, q.window_buffer_s) as hold_s
    from skep.queue q where q.id = k.queue_id offset 0
  ) q;
  if v_idle is not null then
    update skep.cursor c
    set available_at = p_now + make_interval(secs => i.hold_s)
    from unnest(v_idle, v_hold_s) i(place, hold_s)
    where c.ctid = i.place;
  end if;
end $$;
