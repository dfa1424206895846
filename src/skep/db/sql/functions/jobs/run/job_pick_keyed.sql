-- job_pick_keyed: choose ready jobs within the limit per key.
-- Takes   p_type_id, p_priority, p_room: the maximum; p_per_key: how many jobs of a key may run;
--         p_now.
-- Returns the ids of the jobs, locked; null if there is none. Jobs without a key are unlimited here
--         and come last.
-- Locks   ready skep.open_job rows for update, skipping locked ones; the caller holds the type.
-- Why     The next key is one look-up away, and a busy key costs counting at most p_per_key running
--         jobs, however long its backlog. Keys are visited from a random one on and around, so that
--         none starves; at most 1000 on either side per call, so with more busy keys a free one may
--         take several calls to find.
create function skep.job_pick_keyed(
  p_type_id integer, p_priority smallint, p_room integer, p_per_key integer, p_now timestamptz)
returns uuid[]
language plpgsql as $$
declare
  v_start constant text := substr(md5(random()::text), 1, 8);
  v_picked uuid[] := '{}';
  v_ids uuid[];
  v_key text;
begin
  for v_key in
    select k.key from skep.job_waiting_keys(p_type_id, v_start, 1000) k
    union all
    select k.key from skep.job_waiting_keys(p_type_id, '', 1000) k where k.key < v_start
  loop
    exit when cardinality(v_picked) >= p_room;
    select array_agg(r.job_id) into v_ids from (
      select o.job_id from skep.open_job o
      -- A range, so that the order can begin with the key: only the index by key gives that; the
      -- one by due time would be walked past every other key.
      where o.type_id = p_type_id and o.limit_key >= v_key and o.limit_key <= v_key
        and o.priority = p_priority
        and o.due_at <= p_now and o.worker_id is null and o.open_blockers = 0
      order by o.limit_key, o.due_at, o.job_id
      limit greatest(0, least(
        p_room - cardinality(v_picked),
        p_per_key - (select count(*) from (
          select from skep.open_job n
          where n.type_id = p_type_id and n.limit_key = v_key and n.worker_id is not null
          limit p_per_key) n)::integer))
      for update skip locked
    ) r;
    v_picked := v_picked || coalesce(v_ids, '{}');
  end loop;
  select array_agg(r.job_id) into v_ids from (
    select o.job_id from skep.open_job o
    where o.type_id = p_type_id and o.priority = p_priority and o.limit_key is null
      and o.due_at <= p_now and o.worker_id is null and o.open_blockers = 0
    -- The key is always null here; naming it first selects the index by key.
    order by o.limit_key, o.due_at, o.job_id limit p_room - cardinality(v_picked)
    for update skip locked
  ) r;
  return nullif(v_picked || coalesce(v_ids, '{}'), '{}');
end $$;
