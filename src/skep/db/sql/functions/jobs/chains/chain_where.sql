-- chain_where: build the SQL condition of a filter of chains, for a table alias c.
-- Takes   p_type (name), p_state (open, completed, failed, cancelled), p_parent_job_id, p_key,
--         p_ids: null for any; p_created_from, p_created_to: null for no bound; p_descending;
--         p_after: the last id of the previous page, null to begin.
-- Returns SQL, never empty.
-- Locks   none.
-- Why     One filter for listing, counting and changing: what is changed is what was shown. Values
--         are constants, not parameters: only then can the planner use partial indexes and
--         statistics.
create function skep.chain_where(
  p_type text, p_state text, p_parent_job_id uuid, p_key text, p_ids uuid[],
  p_created_from timestamptz, p_created_to timestamptz, p_descending boolean, p_after uuid)
returns text
language plpgsql stable as $$
declare
  v_where text := 'true';
begin
  if p_type is not null then
    v_where := v_where || format(
      ' and c.type_id = %L', (select t.id from skep.job_type t where t.name = p_type));
  end if;
  if p_state is not null then v_where := v_where || format(' and c.state = %L', p_state); end if;
  if p_parent_job_id is not null then
    v_where := v_where || format(' and c.parent_job_id = %L', p_parent_job_id);
  end if;
  if p_key is not null then v_where := v_where || format(' and c.key = %L', p_key); end if;
  if p_ids is not null then
    v_where := v_where || format(' and c.id = any (%L::uuid[])', p_ids);
  end if;
  if p_created_from is not null then
    v_where := v_where || format(' and c.created_at >= %L', p_created_from);
  end if;
  if p_created_to is not null then
    v_where := v_where || format(' and c.created_at < %L', p_created_to);
  end if;
  if p_after is not null then
    v_where := v_where
      || format(' and c.id %s %L', case when p_descending then '<' else '>' end, p_after);
  end if;
  return v_where;
end $$;
