/*
json_depth: how deep arrays and objects are nested.

Takes   p_json: valid JSON.
Returns the depth of the deepest value: 0 for a scalar. A depth that cannot be large is not
        counted: then it is the number of brackets that open, which is as deep or deeper.
Locks   none.
Why     PostgreSQL parses deeper nesting than the parsers of brokers and clients do. Such a message
        would stop its partition: nobody could cut it out of its segment. Few payloads have enough
        brackets to make counting necessary.
*/
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
