-- delete_query: delete a stream's query and its state.
-- Returns whether it existed.
-- Locks   the skep.stream_query row for update, which waits for running cycles.
-- Why     Shards and state go by their foreign keys. The consumer group on the source stays and is
--         deleted separately.
create function skep.delete_query(p_name text) returns boolean
language sql as $$
  with deleted as (
    delete from skep.stream_query q where q.name = p_name returning 1
  )
  select exists (select 1 from deleted);
$$;
