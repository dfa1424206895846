-- kv_incr: add to a number under a key in the calling transaction.
-- Takes   min, max: it is not done if the number would be outside. ttl_seconds: of a number that did
--         not exist and starts from 0; one that exists keeps its expiry.
-- Returns as kv_put; reason may also be limit, or type where the value is no number.
-- Raises  as kv_change.
-- Locks   as kv_apply.
-- Why     See kv_put. The sum is exact, whatever the number of digits.
create function skep.kv_incr(
  ns text, key text, delta numeric default 1, min numeric default null, max numeric default null,
  ttl_seconds bigint default null)
returns table (applied boolean, reason text, value_now jsonb, version bigint)
language sql as $$
  select c.* from skep.kv_change('incr', ns, key, to_jsonb(delta), ttl_seconds, null, min, max) c;
$$;
