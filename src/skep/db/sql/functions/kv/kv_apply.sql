-- kv_apply: carry out key/value operations of many clients' calls, each call entirely or not at all.
-- Takes   p_ns, p_key: the keys, each once. Per operation: p_call, the number of its call,
--         ascending; p_slot: which key, from 1; p_op: get, check, put, incr, delete; p_value: of a
--         put, or the delta of an incr; p_expect: the version the key must have, 0: it must not
--         exist, null: any; p_ttl_s: null is forever; p_required: if it is not applied, nothing of
--         the call is; p_min, p_max: what an incr must not leave.
-- Returns one row of arrays, per operation. applied: done, or found. reason: why not, as exists,
--         absent, version, limit or type. value, version, expires_at, updated_at: of the key after
--         it, of the removed one after a delete; version 0 if there is none. is_undone: an operation
--         of the call was required and not applied. value is null for puts that were applied.
-- Locks   the skep.kv_entry rows of all keys for update, in order of (ns, key), those that do not
--         exist too.
-- Why     All keys are locked before any is read, also those that are only read, because what the
--         call writes may depend on them: calls are serializable. A key that does not exist is
--         locked by inserting it; one that still does not exist at the end is deleted again. The
--         `where false` locks an existing row and writes nothing. Versions are drawn from one
--         sequence under the lock, so those of a key only grow. Calls of one execution follow each
--         other in memory and every key is written once.
create function skep.kv_apply(
  p_ns text[], p_key text[], p_call integer[], p_slot integer[], p_op text[], p_value jsonb[],
  p_expect bigint[], p_ttl_s bigint[], p_required boolean[], p_min numeric[], p_max numeric[])
returns table (
  applied boolean[], reason text[], value jsonb[], version bigint[], expires_at timestamptz[],
  updated_at timestamptz[], is_undone boolean[])
language plpgsql as $$
#variable_conflict use_column
declare
  v_now timestamptz;
  v_state skep.kv_entry[];            -- by key; version 0 where it does not exist
  v_is_changed boolean[];
  v_count constant integer := cardinality(p_op);
  v_may_undo constant boolean := true = any(p_required);
  v_before skep.kv_entry[] := '{}';   -- what the current call has overwritten ...
  v_before_at integer[] := '{}';      -- ... and where, with what was known of changes
  v_before_changed boolean[] := '{}';
  v_first integer := 1;               -- the first operation of the current call
  v_fails boolean := false;
  v_at integer;
  v_entry skep.kv_entry;
  v_reason text;
  v_number numeric;
begin
  insert into skep.kv_entry (ns, key, value, version, created_at, updated_at)
  select k.ns, k.key, 'null', 0, skep.now(), skep.now()
  from unnest(p_ns, p_key) k(ns, key)
  order by k.ns collate "C", k.key collate "C"
  on conflict (ns, key) do update set version = 0 where false;
  v_now := skep.now();
  select array_agg(e order by k.slot), array_agg(false) into v_state, v_is_changed
  from unnest(p_ns, p_key) with ordinality k(ns, key, slot)
  cross join lateral (
    select e from skep.kv_entry e where e.ns = k.ns and e.key = k.key offset 0
  ) e;

  applied := array_fill(null::boolean, array[v_count]);
  reason := array_fill(null::text, array[v_count]);
  value := array_fill(null::jsonb, array[v_count]);
  version := array_fill(null::bigint, array[v_count]);
  expires_at := array_fill(null::timestamptz, array[v_count]);
  updated_at := array_fill(null::timestamptz, array[v_count]);
  is_undone := array_fill(false, array[v_count]);

  for v_item in 1..v_count loop
    v_at := p_slot[v_item];
    v_entry := v_state[v_at];
    if v_entry.expires_at <= v_now then
      v_entry.version := 0;
    end if;
    v_reason := case
      when p_expect[v_item] is null then
        case when v_entry.version = 0 and p_op[v_item] in ('get', 'delete') then 'absent' end
      when p_expect[v_item] = 0 then case when v_entry.version > 0 then 'exists' end
      when v_entry.version = 0 then 'absent'
      when v_entry.version <> p_expect[v_item] then 'version'
    end;
    if p_op[v_item] = 'incr' then
      if v_entry.version = 0 then
        v_number := (p_value[v_item] #>> '{}')::numeric;
      elsif jsonb_typeof(v_entry.value) <> 'number' then
        v_reason := 'type';
      else
        v_number := (v_entry.value #>> '{}')::numeric + (p_value[v_item] #>> '{}')::numeric;
      end if;
      if v_reason is null and (v_number < p_min[v_item] or v_number > p_max[v_item]) then
        v_reason := 'limit';
      end if;
    end if;

    if v_reason is null and p_op[v_item] in ('put', 'incr', 'delete') then
      if v_may_undo then
        v_before := v_before || v_state[v_at];
        v_before_at := v_before_at || v_at;
        v_before_changed := v_before_changed || v_is_changed[v_at];
      end if;
      if p_op[v_item] = 'delete' then
        if v_entry.version > 0 then
          value[v_item] := v_entry.value;
        end if;
        version[v_item] := v_entry.version;
        v_entry.version := 0;
      else
        if v_entry.version = 0 then
          v_entry.created_at := v_now;
        end if;
        if v_entry.version = 0 or p_op[v_item] = 'put' then
          v_entry.expires_at := v_now + make_interval(secs => p_ttl_s[v_item]);
        end if;
        if p_op[v_item] = 'put' then
          v_entry.value := p_value[v_item];
        else
          v_entry.value := to_jsonb(v_number);
          value[v_item] := v_entry.value;
        end if;
        v_entry.version := nextval('skep.kv_version');
        v_entry.updated_at := v_now;
        version[v_item] := v_entry.version;
      end if;
      v_state[v_at] := v_entry;
      v_is_changed[v_at] := true;
    else
      version[v_item] := v_entry.version;
      if v_entry.version > 0 then
        value[v_item] := v_entry.value;
        expires_at[v_item] := v_entry.expires_at;
        updated_at[v_item] := v_entry.updated_at;
      end if;
    end if;
    applied[v_item] := v_reason is null;
    reason[v_item] := v_reason;

    v_fails := v_fails or v_reason is not null and p_required[v_item];
    if v_item = v_count or p_call[v_item + 1] <> p_call[v_item] then
      if v_fails then
        is_undone[v_first:v_item] := array_fill(true, array[v_item - v_first + 1]);
        for v_undo in reverse cardinality(v_before_at)..1 loop
          v_state[v_before_at[v_undo]] := v_before[v_undo];
          v_is_changed[v_before_at[v_undo]] := v_before_changed[v_undo];
        end loop;
      end if;
      v_before := '{}';
      v_before_at := '{}';
      v_before_changed := '{}';
      v_first := v_item + 1;
      v_fails := false;
    end if;
  end loop;

  update skep.kv_entry e
  set value = s.value, version = s.version, expires_at = s.expires_at, created_at = s.created_at,
      updated_at = s.updated_at
  from unnest(v_state, v_is_changed) s(
    ns, key, value, version, expires_at, created_at, updated_at, is_changed)
  where e.ns = s.ns and e.key = s.key and s.is_changed and s.version > 0;
  delete from skep.kv_entry e
  using unnest(v_state) s
  where e.ns = s.ns and e.key = s.key and s.version = 0;
  return next;
end $$;
