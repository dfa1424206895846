-- job_pick_limited: choose ready jobs of a type with limits.
-- Takes   p_type_id, p_priority, p_room: the maximum; p_now.
-- Returns the ids of the jobs, locked; null if none may run now.
-- Locks   the skep.job_type row for no key update, or nothing if another session holds it; ready
--         skep.open_job rows for update, skipping locked ones.
-- Why     Under the type's lock the number of running jobs can only fall, so a limit is never
--         exceeded. Tokens refill with time, up to one period's worth.
create function skep.job_pick_limited(
  p_type_id integer, p_priority smallint, p_room integer, p_now timestamptz)
returns uuid[]
language plpgsql as $$
declare
  v_type skep.job_type;
  v_room integer := p_room;
  v_tokens double precision;
  v_picked uuid[];
begin
  select t.* into v_type from skep.job_type t where t.id = p_type_id
  for no key update skip locked;
  if not found then
    return null;
  end if;
  if v_type.concurrency is not null then
    v_room := least(v_room, v_type.concurrency - (
      select count(*) from (
        select from skep.open_job o where o.type_id = p_type_id and o.worker_id is not null
        limit v_type.concurrency) r)::integer);
  end if;
  if v_type.rate_limit is not null then
    v_tokens := least(
      v_type.rate_limit,
      v_type.tokens + extract(epoch from p_now - v_type.refilled_at)
        * v_type.rate_limit / v_type.rate_period_s);
    -- The tolerance lets fractions of a period add up to whole tokens.
    v_room := least(v_room, floor(v_tokens + 1e-6)::integer);
  end if;
  if v_room <= 0 then
    return null;
  end if;
  if v_type.key_concurrency is null then
    select array_agg(r.job_id) into v_picked from (
      select o.job_id from skep.open_job o
      where o.type_id = p_type_id and o.priority = p_priority
        and o.due_at <= p_now and o.worker_id is null and o.open_blockers = 0
      order by o.due_at, o.job_id limit v_room
      for update skip locked
    ) r;
  else
    v_picked := skep.job_pick_keyed(
      p_type_id, p_priority, v_room, v_type.key_concurrency, p_now);
  end if;
  if v_type.rate_limit is not null and v_picked is not null then
    update skep.job_type t
    set tokens = v_tokens - cardinality(v_picked), refilled_at = p_now
    where t.id = p_type_id;
  end if;
  return v_picked;
end $$;
