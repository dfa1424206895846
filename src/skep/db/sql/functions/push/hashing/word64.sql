-- word64: read bytes as a little-endian number.
-- Takes   p_bytes; p_at: the first byte, from 0. p_size: how many, up to 8.
-- Returns their bits.
-- Locks   none.
-- Why     Hashes read little-endian; PostgreSQL's casts read big-endian.
create function skep.word64(p_bytes bytea, p_at integer, p_size integer default 8) returns bigint
language plpgsql immutable parallel safe as $$
declare
  v_word bigint := 0;
begin
  for v_byte in reverse p_size - 1 .. 0 loop
    v_word := (v_word << 8) | get_byte(p_bytes, p_at + v_byte);
  end loop;
  return v_word;
end $$;
