-- kv_delete: delete a key in the calling transaction.
-- Takes   expect: as kv_put.
-- Returns as kv_put; of a key that was deleted its last value and version.
-- Raises  as kv_change.
-- Locks   as kv_apply.
-- Why     See kv_put.
create function skep.kv_delete(ns text, key text, expect bigint default null)
returns table (applied boolean, reason text, value_now jsonb, version bigint)
language sql as $$
  select c.* from skep.kv_change('delete', ns, key, null, null, expect) c;
$$;
