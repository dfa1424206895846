-- join_envelopes: make the bodies of segments of a partition's messages.
-- Returns one row: the bodies, and p_row_end as row_spans takes it.
-- Locks   none.
-- Why     The same cut as in skep.model.envelopes: with its keys a segment just fits on a page; a
--         larger message has one of its own.
create function skep.join_envelopes(p_envelope bytea[])
returns table (body bytea[], row_end integer[])
language plpgsql immutable as $$
declare
  v_bytes_max constant integer := 8000;
  v_size integer;
  v_bytes integer := 0;
begin
  row_end := '{}';
  for i in 1 .. cardinality(p_envelope) loop
    v_size := octet_length(p_envelope[i]) + 17;  -- a comma and the key
    if v_bytes > 0 and v_bytes + v_size > v_bytes_max then
      row_end := row_end || i - 1;
      v_bytes := 0;
    end if;
    v_bytes := v_bytes + v_size;
  end loop;
  row_end := row_end || cardinality(p_envelope);

  select array_agg('['::bytea || r.envelopes || ']' order by r.number) into body
  from (
    select width_bucket(u.item::integer - 1, row_end) as number,
           string_agg(u.envelope, ',' order by u.item) as envelopes
    from unnest(p_envelope) with ordinality u(envelope, item)
    group by 1
  ) r;
  return next;
end $$;
