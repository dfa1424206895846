-- kv_put_if_absent: store a value under a key that does not exist, in the calling transaction.
-- Takes   ttl_seconds: when it expires, null is never.
-- Returns as kv_put.
-- Raises  as kv_change.
-- Locks   as kv_apply.
-- Why     See kv_put. The name says what kv_put with an expected version of 0 does.
create function skep.kv_put_if_absent(
  ns text, key text, value jsonb, ttl_seconds bigint default null)
returns table (applied boolean, reason text, value_now jsonb, version bigint)
language sql as $$
  select c.* from skep.kv_change('put', ns, key, value, ttl_seconds, 0) c;
$$;
