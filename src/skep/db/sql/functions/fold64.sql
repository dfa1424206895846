/*
fold64: the product of two 64-bit numbers, its upper half folded onto its lower one.

Takes   p_one, p_other.
Returns the lower 64 bits of their 128-bit product xor the upper ones.
Locks   none.
Why     The one step of XXH3 that mixes its input.
*/
create function skep.fold64(p_one bigint, p_other bigint) returns bigint
language sql immutable parallel safe as $$
  select skep.wrap64(p.product) # skep.wrap64(div(p.product, 18446744073709551616))
  from (select skep.unsigned64(p_one) * skep.unsigned64(p_other) as product) p;
$$;
