-- letter_cause: reduce an error text to its cause.
-- Takes   p_error: of a dead letter.
-- Returns its first line, at most 200 characters, with # for numbers and ids.
-- Why     "order 17 not found" and "order 18 not found" are the same cause; grouped by full text, a
--         table would have as many rows as letters.
create function skep.letter_cause(p_error text) returns text
language sql immutable parallel safe as $$
  select left(
    regexp_replace(
      split_part(ltrim(p_error, E' \t\r\n'), E'\n', 1),
      '\y[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\y|\y[0-9a-f]{16,}\y|\d+',
      '#', 'gi'),
    200);
$$;
