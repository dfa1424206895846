-- kv_put: store a value under a key in the calling transaction.
-- Takes   ttl_seconds: when it expires, null is never; expect: the version the key must have, 0: it
--         must not exist, null: any.
-- Returns one row: applied; reason, if not: exists, absent or version; the value and version of the
--         key now.
-- Raises  as kv_change.
-- Locks   as kv_apply.
-- Why     An application decides with its own data and stores the key with it, all or nothing.
create function skep.kv_put(
  ns text, key text, value jsonb, ttl_seconds bigint default null, expect bigint default null)
returns table (applied boolean, reason text, value_now jsonb, version bigint)
language sql as $$
  select c.* from skep.kv_change('put', ns, key, value, ttl_seconds, expect) c;
$$;
