-- read_envelope: one message as stored.
-- Returns the text of the envelope; null if there is no such message or it was deleted.
-- Why     The payload is not decoded: json functions fail on some valid payloads.
create function skep.read_envelope(p_partition_id bigint, p_offset bigint) returns text
language sql stable as $$
  select m.envelope::text
  from (
    select s.first, s.last, s.body from skep.segment s
    where s.partition_id = p_partition_id and s.first <= p_offset
    order by s.first desc limit 1
  ) s
  cross join lateral json_array_elements(convert_from(s.body, 'UTF8')::json)
    with ordinality m(envelope, position)
  where p_offset <= s.last
    and m.position = p_offset - s.first + 1
    and json_typeof(m.envelope) = 'object';
$$;
