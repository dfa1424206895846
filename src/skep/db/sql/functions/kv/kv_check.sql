-- kv_check: make sure that a key has a version until the calling transaction ends.
-- Takes   expect: the version, or 0: the key must not exist.
-- Returns as kv_put.
-- Raises  SK412 if the key has another version, so that the transaction ends; as kv_change.
-- Locks   as kv_apply.
-- Why     See kv_put. A transaction that writes tables as the holder of something stops here when
--         another has become the holder, and no other can become it meanwhile.
create function skep.kv_check(ns text, key text, expect bigint)
returns table (applied boolean, reason text, value_now jsonb, version bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  if expect is null then
    raise exception using errcode = '22023', message =
      'expect is null. Use a version, or 0 for a key that must not exist.';
  end if;
  select c.* into strict applied, reason, value_now, version
  from skep.kv_change('check', kv_check.ns, kv_check.key, null, null, kv_check.expect) c;
  if not applied then
    raise exception using errcode = 'SK412', message =
      format('The key %s of %s has version %s and not %s.', key, ns, version, expect);
  end if;
  return next;
end $$;
