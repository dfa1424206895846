-- key_places: find a key among the keys of a segment.
-- Takes   p_keys: 16 bytes per message.
-- Returns the places of the messages with the key, 0-based, ascending; none if it is no key.
-- Locks   none.
-- Why     Acks by transaction id search once per message, and a search for bytes is many times as
--         fast as cutting all keys of a large segment apart. A find across two keys is none.
create function skep.key_places(p_keys bytea, p_key bytea) returns setof integer
language plpgsql immutable strict as $$
declare
  v_after integer := 0;              -- bytes searched
  v_found integer;
begin
  while length(p_key) = 16 loop
    v_found := position(p_key in substr(p_keys, v_after + 1));
    exit when v_found = 0;
    v_after := v_after + v_found;
    if v_after % 16 = 1 then
      return next v_after / 16;
    end if;
  end loop;
end $$;
