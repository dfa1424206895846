-- kv_commit: carry out key/value operations as kv_apply does, and remember the answer.
-- Takes   p_id: the broker's id of this execution. p_patience_ms: how long to wait for a key that
--         another transaction has locked. p_value: JSON as text. p_list_*: prefixes to list
--         afterwards, as kv_list. The rest as kv_apply.
-- Returns one row: the columns of kv_apply, with values as text, and listed: the rows of kv_list as
--         a JSON array.
-- Locks   as kv_apply.
-- Why     The answer of what changed something is recorded in the same transaction: after a lost
--         connection the broker finds it under its id, where a repetition would count twice. Calls
--         of many clients share an execution and must not wait long for a key that an application
--         has locked: the broker then repeats them apart.
create function skep.kv_commit(
  p_id uuid, p_patience_ms integer, p_ns text[], p_key text[], p_call integer[], p_slot integer[],
  p_op text[], p_value text[], p_expect bigint[], p_ttl_s bigint[], p_required boolean[],
  p_min numeric[], p_max numeric[], p_list_ns text[], p_list_prefix text[], p_list_after text[],
  p_list_limit integer[], p_list_bytes bigint)
returns table (
  applied boolean[], reason text[], value text[], version bigint[], expires_at timestamptz[],
  updated_at timestamptz[], is_undone boolean[], listed json)
language plpgsql as $$
#variable_conflict use_column
begin
  perform set_config('lock_timeout', p_patience_ms::text, true) where p_patience_ms is not null;
  select a.applied, a.reason, a.value::text[], a.version, a.expires_at, a.updated_at, a.is_undone
  into strict applied, reason, value, version, expires_at, updated_at, is_undone
  from skep.kv_apply(
    p_ns, p_key, p_call, p_slot, p_op, p_value::jsonb[], p_expect, p_ttl_s, p_required, p_min,
    p_max) a;
  if cardinality(p_list_ns) > 0 then
    select json_agg(l) into listed
    from skep.kv_list(p_list_ns, p_list_prefix, p_list_after, p_list_limit, p_list_bytes) l;
  end if;
  insert into skep.settled_transaction (id, answer, settled_at)
  select p_id, json_build_object(
    'applied', applied, 'reason', reason, 'value', value, 'version', version,
    'expires_at', expires_at, 'updated_at', updated_at, 'is_undone', is_undone, 'listed', listed),
    skep.now()
  where exists (
    select from unnest(applied, is_undone, p_op) o(applied, is_undone, op)
    where o.applied and not o.is_undone and o.op in ('put', 'incr', 'delete'));
  return next;
end $$;
