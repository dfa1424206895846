-- kv_change: carry out one key/value operation in the calling transaction.
-- Takes   as kv_apply, for one operation.
-- Returns one row: whether it was applied, why not, and the key after it, or the removed one.
-- Raises  22023 for what HTTP refuses: a value above 64 KiB, a time to live or an expected version
--         that cannot be. The table refuses namespaces and keys.
-- Locks   as kv_apply.
-- Why     kv_put and the others are made of it, and of what the broker's own calls run, so that no
--         rule differs between them.
create function skep.kv_change(
  p_op text, p_ns text, p_key text, p_value jsonb, p_ttl_seconds bigint, p_expect bigint,
  p_min numeric default null, p_max numeric default null)
returns table (applied boolean, reason text, value jsonb, version bigint)
language plpgsql as $$
#variable_conflict use_column
begin
  if p_ttl_seconds not between 1 and 3153600000 then
    raise exception using errcode = '22023', message =
      format('Invalid ttl_seconds: %s. Use 1 to 3153600000, or null for ever.', p_ttl_seconds);
  end if;
  if p_expect < 0 then
    raise exception using errcode = '22023', message =
      format('Invalid expect: %s. Use a version, 0 for a key that must not exist, or null.', p_expect);
  end if;
  if p_op in ('put', 'incr') and p_value is null then
    raise exception using errcode = '22023', message =
      'The value is null. Use ''null''::jsonb to store a JSON null.';
  end if;
  if octet_length(p_value::text) > 65536
    and octet_length(regexp_replace(
      p_value::text, '("(?:[^"\\]|\\.)*")|([,:]) ', '\1\2', 'g')) > 65536
  then
    raise exception using errcode = '22023', message = 'The value is larger than 65536 bytes.';
  end if;
  select a.applied[1], a.reason[1],
         case when p_op = 'put' and a.applied[1] then p_value else a.value[1] end, a.version[1]
  into strict applied, reason, value, version
  from skep.kv_apply(
    array[p_ns], array[p_key], array[1], array[1], array[p_op], array[p_value], array[p_expect],
    array[p_ttl_seconds], array[false], array[p_min], array[p_max]) a;
  return next;
end $$;
