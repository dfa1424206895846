-- unsigned64: read 64 bits as an unsigned number.
-- Returns the number, 0 to 2^64 - 1.
-- Locks   none.
-- Why     Hashes multiply unsigned numbers. The inverse of wrap64.
create function skep.unsigned64(p_bits bigint) returns numeric
language sql immutable parallel safe as $$
  select case when p_bits < 0 then p_bits + 18446744073709551616 else p_bits::numeric end;
$$;
