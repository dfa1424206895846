-- shift64: shift 64 bits right, filling with zeros.
-- Takes   p_bits; p_by: 1 to 63.
-- Returns the bits.
-- Locks   none.
-- Why     The operator >> fills with the sign.
create function skep.shift64(p_bits bigint, p_by integer) returns bigint
language sql immutable parallel safe as $$
  select (p_bits >> p_by) & ~((-1)::bigint << (64 - p_by));
$$;
