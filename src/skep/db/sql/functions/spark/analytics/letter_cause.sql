/*
letter_cause: what an error says, without what differs from message to message.

Takes   p_error: the error of a dead letter.
Returns its first line, at most 200 characters of it, with # for numbers and ids.
Locks   none.
Why     "order 17 not found" and "order 18 not found" are the same cause of death, and a table by
        error would have as many rows as there are letters.
*/
create function skep.letter_cause(p_error text) returns text
language sql immutable parallel safe as $$
  select left(
    regexp_replace(
      split_part(ltrim(p_error, E' \t\r\n'), E'\n', 1),
      '\y[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\y|\y[0-9a-f]{16,}\y|\d+',
      '#', 'gi'),
    200);
$$;
