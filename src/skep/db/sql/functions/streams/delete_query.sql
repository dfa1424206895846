/*
delete_query: remove a stream's query and its state.

Takes   p_name.
Returns whether there was one.
Locks   the skep.stream_query row for update, which waits for the cycles under way.
Why     Shards and state go with it by their foreign keys. The consumer group on the source stays:
        it is a group like any other and has its own way to be deleted.
*/
create function skep.delete_query(p_name text) returns boolean
language sql as $$
  with deleted as (
    delete from skep.stream_query q where q.name = p_name returning 1
  )
  select exists (select 1 from deleted);
$$;
