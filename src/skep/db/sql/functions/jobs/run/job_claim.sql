-- job_claim: claim ready jobs for a worker.
-- Takes   p_worker_id: an enrolled worker. p_type_id: the types it runs. p_limit. p_pool: per type,
--         which element of p_room it draws on, null for none; p_room: how many jobs may start in
--         each pool of the worker.
-- Returns per job, in starting order: job_id, chain_id, type_id, position, attempt (with the
--         worker's id the fencing token), failures, max_attempts, input, trace, chain_trace,
--         due_at, deadline_at, blockers (as job_blockers). If fewer than p_limit were ready, a last
--         row without job_id says in due_at when to look again (null: nothing is scheduled). Paused
--         types and those without room are skipped. No row if the worker is not enrolled.
-- Locks   the skep.job_worker row for key share; skep.job_type rows of limited types, skipping
--         locked ones; ready skep.open_job rows, skipping locked ones.
-- Why     One index look-up finds each (type, priority) that has ready jobs, and jobs are taken
--         from its front: the cost depends neither on waiting nor on finished jobs, and nothing is
--         sorted. Types of one priority share the room, so that one backlog does not starve
--         another; where a share was all taken and others left theirs, it looks again at once. A
--         claimed job that cannot start yet would be kept from workers that could run it. The lock
--         on the worker keeps the reaper away. Readiness and the next look use the same moment, so
--         nothing becomes ready in between. Only one session at a time claims jobs of a limited
--         type; others skip it.
create function skep.job_claim(
  p_worker_id uuid, p_type_id integer[], p_limit integer, p_pool integer[] default '{}',
  p_room integer[] default '{}')
returns table (
  job_id uuid, chain_id uuid, type_id integer, "position" integer, attempt integer,
  failures integer, max_attempts integer, input text, trace text, chain_trace text,
  due_at timestamptz, deadline_at timestamptz, blockers text)
language plpgsql
set plan_cache_mode = force_generic_plan
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
#variable_conflict use_column
declare
  v_now constant timestamptz := skep.now();
  v_left integer := p_limit;
  v_rooms integer[] := p_room;
  v_share integer;
  v_room integer;
  v_is_cut boolean := false;
  v_taken integer;
  v_picked uuid[];
  v_type_id integer[];
  v_look_again timestamptz;
  v_front record;
begin
  perform 1 from skep.job_worker w where w.id = p_worker_id for key share;
  if not found then
    return;
  end if;
  -- Jobs of paused types wait until a person resumes the type.
  select coalesce(array_agg(t.id), '{}') into v_type_id from skep.job_type t
  where t.id = any (p_type_id) and not t.is_paused
    and coalesce(p_room[p_pool[array_position(p_type_id, t.id)]], 1) > 0;
  for v_front in
    select f.type_id, f.priority,
           count(*) over (partition by f.priority)
             - row_number() over (partition by f.priority order by f.due_at) + 1 as fronts_left,
           t.concurrency is not null or t.key_concurrency is not null or t.rate_limit is not null
             as is_limited,
           p_pool[array_position(p_type_id, f.type_id)] as pool
    from skep.job_fronts(v_type_id, '-infinity') f
    join skep.job_type t on t.id = f.type_id
    where f.due_at <= v_now
    order by f.priority, f.due_at
  loop
    exit when v_left <= 0;
    v_share := ceil(v_left::numeric / v_front.fronts_left);
    v_room := least(v_share, v_rooms[v_front.pool]);
    continue when v_room <= 0;
    if v_front.is_limited then
      v_picked := skep.job_pick_limited(v_front.type_id, v_front.priority, v_room, v_now);
    else
      select array_agg(r.job_id) into v_picked from (
        select o.job_id from skep.open_job o
        where o.type_id = v_front.type_id and o.priority = v_front.priority
          and o.due_at <= v_now and o.worker_id is null and o.open_blockers = 0
        order by o.due_at, o.job_id limit v_room
        for update skip locked
      ) r;
    end if;
    continue when v_picked is null;
    return query
    with taken as (
      update skep.open_job o
      set worker_id = p_worker_id, claimed_at = v_now, attempt = o.attempt + 1
      where o.job_id = any (v_picked)
      returning o.*
    )
    select k.job_id, k.chain_id, k.type_id, j.position, k.attempt, k.failures, k.max_attempts,
           j.input::text, j.trace, c.trace, k.due_at, c.deadline_at,
           case when k.blockers > 0 then skep.job_blockers(k.job_id) end
    from taken k
    cross join lateral (
      select j.position, j.input, j.trace from skep.job j where j.id = k.job_id offset 0
    ) j
    cross join lateral (
      select c.trace, c.deadline_at from skep.chain c where c.id = k.chain_id offset 0
    ) c
    order by k.due_at, k.job_id;
    get diagnostics v_taken = row_count;
    v_left := v_left - v_taken;
    v_is_cut := v_is_cut or v_taken = v_share;
    if v_front.pool is not null then
      v_rooms[v_front.pool] := v_rooms[v_front.pool] - v_taken;
    end if;
  end loop;
  if v_left > 0 then
    if v_is_cut then
      v_look_again := v_now;
    else
      select min(f.due_at) into v_look_again from skep.job_fronts(v_type_id, v_now) f;
    end if;
    return query
    select null::uuid, null::uuid, null::integer, null::integer, null::integer, null::integer,
           null::integer, null::text, null::text, null::text,
           least(v_look_again, skep.job_tokens_at(v_type_id, v_now)), null::timestamptz,
           null::text;
  end if;
end $$;
