-- count_timers: count the timers of a queue whose key begins with a prefix.
-- Returns the number, counted in the index.
-- Why     See kv_list for the end of the range.
create function skep.count_timers(p_queue text, p_prefix text) returns bigint
language sql stable as $$
  select count(*)
  from (select q.id from skep.queue q where q.name = p_queue) q
  join skep.scheduled s on s.queue_id = q.id
  where s.timer_key >= p_prefix
    and s.timer_key <= p_prefix || repeat(chr(1114111), 128) collate "C";
$$;
