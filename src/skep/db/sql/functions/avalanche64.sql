/*
avalanche64: let every bit of a number bear on every other.

Takes   p_bits.
Returns 64 bits.
Locks   none.
Why     The last step of XXH3.
*/
create function skep.avalanche64(p_bits bigint) returns bigint
language sql immutable parallel safe as $$
  select m.mixed # skep.shift64(m.mixed, 32)
  from (
    select skep.wrap64((p_bits # skep.shift64(p_bits, 37))::numeric * 1609587791953885689) as mixed
  ) m;
$$;
