-- sweep_staging: delete abandoned staging and old records of sinks.
-- Takes   p_before: what was staged or committed before. p_limit: rows per table.
-- Returns how many rows.
-- Locks   as delete_before.
-- Why     A killed driver cleans up nothing. A write that is still running after that time fails at
--         its commit, without a trace. Segments are searched on their own: after a crash nothing
--         else refers to them.
create function skep.sweep_staging(p_before timestamptz, p_limit integer) returns bigint
language sql as $$
  select sum(skep.delete_before(t.name, t.condition, p_before, p_limit))::bigint
  from (values
    ('segment', 'o.partition_id < 0 and o.created_at < $1'),
    ('staged_segment', 'o.staged_at < $1 order by o.staged_at'),
    ('staged_message', 'o.staged_at < $1 order by o.staged_at'),
    ('staged_reject', 'o.staged_at < $1 order by o.staged_at'),
    ('sink', 'o.is_passing and o.committed_at < $1 order by o.committed_at')
  ) t(name, condition);
$$;
