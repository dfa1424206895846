/*
unsigned64: the number that 64 bits stand for when none of them is a sign.

Takes   p_bits.
Returns the number, from 0 to 2^64 - 1.
Locks   none.
Why     The counterpart of wrap64: products and sums of hashes are those of unsigned numbers.
*/
create function skep.unsigned64(p_bits bigint) returns numeric
language sql immutable parallel safe as $$
  select case when p_bits < 0 then p_bits + 18446744073709551616 else p_bits::numeric end;
$$;
