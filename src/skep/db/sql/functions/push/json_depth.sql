-- json_depth: how deep arrays and objects are nested.
-- Returns the depth of the deepest value, 0 for a scalar; with at most 100 opening brackets, their
--         number, which is an upper bound.
-- Locks   none.
-- Why     PostgreSQL parses deeper nesting than the parsers of brokers and clients: such a message
--         could not be read from its segment and would block its partition.
create function skep.json_depth(p_json text) returns integer
language plpgsql immutable parallel safe as $$
declare
  v_brackets integer := length(p_json) - length(translate(p_json, '[{', ''));
begin
  if v_brackets <= 100 then
    return v_brackets;
  end if;
  return (
    select coalesce(max(d.depth), 0)
    from (
      select sum(case when b.bracket in ('[', '{') then 1 else -1 end) over (order by b.position)
               as depth
      from regexp_split_to_table(
             regexp_replace(
               regexp_replace(p_json, '"(?:[^"\\]|\\.)*"', '', 'g'), '[^][{}]', '', 'g'), '')
             with ordinality b(bracket, position)
      where b.bracket <> ''
    ) d);
end $$;
