-- set_maintenance: switch a maintenance mode on or off for all instances.
-- Takes   p_mode: push or pop.
-- Locks   the row of the mode.
-- Why     The database is the only place that every instance sees.
create function skep.set_maintenance(p_mode text, p_enabled boolean) returns void
language sql as $$
  insert into skep.maintenance_mode (mode, enabled, changed_at)
  values (p_mode, p_enabled, skep.now())
  on conflict (mode) do update set enabled = excluded.enabled, changed_at = excluded.changed_at;
$$;
