/*
shift64: shift 64 bits to the right and fill up with zeros.

Takes   p_bits; p_by: from 1 to 63.
Returns the bits.
Locks   none.
Why     The operator >> fills up with the sign.
*/
create function skep.shift64(p_bits bigint, p_by integer) returns bigint
language sql immutable parallel safe as $$
  select (p_bits >> p_by) & ~((-1)::bigint << (64 - p_by));
$$;
