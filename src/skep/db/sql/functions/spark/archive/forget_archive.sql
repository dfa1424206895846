/*
forget_archive: begin a new archive; the files of the old one stay where they are.

Takes   nothing.
Returns how many queues had one.
Locks   the rows.
Why     In a database that was restored from a dump. The lake belongs to the server it came from,
        and its transaction ids mean nothing here. Run by a person.
*/
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
