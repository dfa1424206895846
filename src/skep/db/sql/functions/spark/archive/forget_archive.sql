-- forget_archive: start a new archive, leaving the old files in place.
-- Returns how many queues had one.
-- Locks   the deleted rows.
-- Why     For a database restored from a dump: the lake belongs to the original server, and its
--         transaction ids mean nothing here. Run by a person.
create function skep.forget_archive() returns bigint
language plpgsql as $$
declare
  v_queues bigint;
begin
  delete from skep_lake.iceberg_tables;
  delete from skep_lake.iceberg_namespace_properties;
  delete from skep.archive_run;
  delete from skep.archive;
  get diagnostics v_queues = row_count;
  return v_queues;
end $$;
