-- waits_behind: whether a cursor waits for exactly the messages behind an offset.
-- Takes   p_group_id: null: of no group.
-- Returns true if a claim of what follows is a plain one: nothing failed, is done ahead of the
--         cursor or was delivered before.
-- Locks   none.
-- Why     hand_over asks it for most columns that it sets; it is inlined.
create function skep.waits_behind(p_cursor skep.cursor, p_group_id integer, p_offset bigint)
returns boolean
language sql immutable as $$
  select p_cursor.group_id = p_group_id and p_cursor.acked = p_offset
         and p_cursor.delivered <= p_offset and p_cursor.done is null
         and p_cursor.failed_offset is null;
$$;
