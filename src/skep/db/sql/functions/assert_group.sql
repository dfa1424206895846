/*
assert_group: refuse a consumer group that does not exist.

Takes   p_group_id.
Returns nothing.
Raises  SK404.
Locks   none.
Why     Brokers remember group ids; when a queue or group was deleted meanwhile they must learn it
        instead of polling a ghost for ever.
*/
create function skep.assert_group(p_group_id integer) returns void
language plpgsql stable as $$
begin
  perform 1 from skep.consumer_group g where g.id = p_group_id;
  if not found then
    raise exception using errcode = 'SK404', message = 'the consumer group does not exist';
  end if;
end $$;
