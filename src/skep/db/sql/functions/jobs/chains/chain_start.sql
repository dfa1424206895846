-- chain_start: start chains, all of them or none.
-- Takes   per chain, in parallel arrays: p_chain_id (new; also the id of its first job), p_type
--         (name), p_input (JSON), p_priority (lower runs first), p_due_at or p_delay_s (both null:
--         now), p_max_attempts, p_limit_key, p_deadline_s (from now, or null), p_parent_job_id,
--         p_trace; for deduplication p_key (or null), p_any (closed and pruned chains hold it too),
--         p_window_s (only chains started so recently hold it, or null), p_instead_of (a chain
--         whose hold is ignored, or null). Blockers: p_blocked_item (1-based), p_blocker_id,
--         p_on_failure. p_notify: wake workers on commit.
-- Returns per chain, in order: item, chain_id, outcome: started; duplicate (chain_id holds the key;
--         not written); exists (a chain has this id; nothing at all was written); missing_blocker
--         (a blocker does not exist, or is started by this call; nothing at all was written).
-- Locks   blockers' skep.chain rows for share, in ascending id; then skep.chain_key rows it takes
--         over, ascending.
-- Why     Blockers are held for share, so that each closes before (and is seen closed) or after
--         (and finds the new edge): no job waits for a finished chain. Key holders are read without
--         a lock: a user's open transaction that only found a duplicate must not keep the holder
--         from closing. Taking over a key names the holder that was judged, through a unique index,
--         so one of many wins. Known type names are only read. Planned for full tables (ADR 0004).
--         The variant with p_is_fatal is for applications of the release before (blocker_policies).
create function skep.chain_start(
  p_chain_id uuid[], p_type text[], p_input text[], p_priority smallint[],
  p_due_at timestamptz[], p_delay_s double precision[], p_max_attempts integer[],
  p_limit_key text[], p_deadline_s double precision[], p_parent_job_id uuid[], p_trace text[],
  p_key text[], p_any boolean[], p_window_s double precision[], p_instead_of uuid[],
  p_blocked_item integer[], p_blocker_id uuid[], p_on_failure text[], p_notify boolean)
returns table (item integer, chain_id uuid, outcome text)
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
  v_type_id integer[];
  v_is_new boolean[];
  v_holder uuid[] := p_chain_id;
  v_refusal text;
  v_keyed record;
begin
  select array_agg(t.id order by u.item) into v_type_id
  from unnest(p_type) with ordinality u(name, item)
  left join lateral (select t.id from skep.job_type t where t.name = u.name offset 0) t on true;
  if array_position(v_type_id, null) is not null then
    select array_agg(t.id order by u.item) into v_type_id
    from unnest(p_type) with ordinality u(name, item)
    join skep.job_type_ensure(p_type) t on t.name = u.name;
  end if;

  if exists (select from skep.chain c where c.id = any (p_chain_id)) then
    v_refusal := 'exists';
  elsif cardinality(p_blocker_id) > 0 then
    perform 1 from (
      select distinct u.id from unnest(p_blocker_id) u(id) order by u.id
    ) u
    cross join lateral (select 1 from skep.chain c where c.id = u.id for share) c;
    if exists (
      select from unnest(p_blocker_id) u(id)
      where not exists (select from skep.chain c where c.id = u.id))
    then
      v_refusal := 'missing_blocker';
    end if;
  end if;
  if v_refusal is not null then
    return query
    select u.item::integer, u.id, v_refusal from unnest(p_chain_id) with ordinality u(id, item);
    return;
  end if;

  if array_remove(p_key, null) <> '{}' then
    for v_keyed in
      select u.type_id, u.key, (array_agg(u.item order by u.item))[1] as first,
             array_agg(u.item::integer) as items
      from unnest(v_type_id, p_key) with ordinality u(type_id, key, item)
      where u.key is not null group by u.type_id, u.key order by u.type_id, u.key
    loop
      declare
        v_chain_id uuid;
        v_held skep.chain_key;
        v_item integer;
      begin
        loop
          select k.* into v_held from skep.chain_key k
          where k.type_id = v_keyed.type_id and k.key = v_keyed.key;
          if found
             and (v_held.is_open or coalesce(p_any[v_keyed.first], false))
             and v_held.chain_id is distinct from p_instead_of[v_keyed.first]
             and (p_window_s[v_keyed.first] is null
                  or v_held.started_at > v_now - make_interval(secs => p_window_s[v_keyed.first]))
          then
            v_chain_id := v_held.chain_id;
            exit;
          end if;
          insert into skep.chain_key as k (type_id, key, chain_id, started_at, held_until)
          values (v_keyed.type_id, v_keyed.key, p_chain_id[v_keyed.first], v_now,
                  case when p_any[v_keyed.first] then
                    coalesce(v_now + make_interval(secs => p_window_s[v_keyed.first]), 'infinity')
                  end)
          on conflict (type_id, key) do update
          set chain_id = excluded.chain_id, is_open = true, started_at = excluded.started_at,
              held_until = excluded.held_until, is_pruned = false
          where k.chain_id = v_held.chain_id and k.is_open = v_held.is_open;
          if found then
            v_chain_id := p_chain_id[v_keyed.first];
            exit;
          end if;
        end loop;
        foreach v_item in array v_keyed.items loop
          v_holder[v_item] := v_chain_id;
        end loop;
      end;
    end loop;
    select array_agg(u.holder = u.id order by u.item) into v_is_new
    from unnest(p_chain_id, v_holder) with ordinality u(id, holder, item);
  end if;

  insert into skep.chain (
    id, type_id, last_job_id, created_at, deadline_at, key, parent_job_id, trace)
  select u.id, u.type_id, u.id, v_now, v_now + make_interval(secs => u.deadline_s), u.key,
         u.parent_job_id, u.trace
  from unnest(p_chain_id, v_type_id, v_holder, p_deadline_s, p_key, p_parent_job_id, p_trace)
    u(id, type_id, holder, deadline_s, key, parent_job_id, trace)
  where u.holder = u.id;
  perform skep.job_add(
    p_chain_id, p_chain_id, null, v_type_id, p_input, p_priority, p_due_at, p_delay_s,
    p_max_attempts, p_limit_key, p_trace, v_is_new, p_blocked_item, p_blocker_id, p_on_failure,
    v_now);

  if p_notify then
    perform pg_notify('skep_job_ready', string_agg(distinct u.type, chr(10)))
    from unnest(p_type, p_chain_id, v_holder) u(type, id, holder)
    where u.holder = u.id having count(*) > 0;
  end if;
  return query
  select u.item::integer, u.holder,
         case when u.holder = u.id then 'started' else 'duplicate' end
  from unnest(p_chain_id, v_holder) with ordinality u(id, holder, item) order by u.item;
end $$;

create function skep.chain_start(
  p_chain_id uuid[], p_type text[], p_input text[], p_priority smallint[],
  p_due_at timestamptz[], p_delay_s double precision[], p_max_attempts integer[],
  p_limit_key text[], p_deadline_s double precision[], p_parent_job_id uuid[], p_trace text[],
  p_key text[], p_any boolean[], p_window_s double precision[], p_instead_of uuid[],
  p_blocked_item integer[], p_blocker_id uuid[], p_is_fatal boolean[], p_notify boolean)
returns table (item integer, chain_id uuid, outcome text)
language sql as $$
  select * from skep.chain_start(
    p_chain_id, p_type, p_input, p_priority, p_due_at, p_delay_s, p_max_attempts, p_limit_key,
    p_deadline_s, p_parent_job_id, p_trace, p_key, p_any, p_window_s, p_instead_of, p_blocked_item,
    p_blocker_id, skep.blocker_policies(p_is_fatal), p_notify);
$$;
