-- is_archiving: whether an attempt of an archive run is still active.
-- Returns false if it was finished or taken over.
-- Why     An abandoned task that lives on must not touch files that are in the catalog by now.
create function skep.is_archiving(p_run_id uuid, p_attempt integer) returns boolean
language sql stable as $$
  select exists (
    select from skep.archive_run r where r.id = p_run_id and r.attempt = p_attempt);
$$;
