-- assert_group: return a consumer group, or refuse.
-- Returns the row of the group.
-- Raises  SK404 if it does not exist.
-- Why     Brokers remember group ids, and must learn that the group was deleted.
create function skep.assert_group(p_group_id integer) returns skep.consumer_group
language plpgsql stable as $$
declare
  v_group skep.consumer_group;
begin
  select g.* into v_group from skep.consumer_group g where g.id = p_group_id;
  if not found then
    raise exception using errcode = 'SK404', message = 'the consumer group does not exist';
  end if;
  return v_group;
end $$;
