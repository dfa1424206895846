-- sweep_kv: delete some keys that have expired.
-- Returns how many were deleted, at most p_limit.
-- Locks   as delete_before.
-- Why     What has expired is invisible at once; deleting it only frees the space, so a step is
--         bounded and leaves out keys that a call has locked.
create function skep.sweep_kv(p_limit integer) returns bigint
language sql as $$
  select skep.delete_before(
    'kv_entry', 'o.expires_at <= $1 order by o.expires_at', skep.now(), p_limit);
$$;
