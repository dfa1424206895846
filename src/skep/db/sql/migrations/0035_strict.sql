/*
Whether a queue refuses pushed items with unknown fields or without a payload. Queen's protocol
ignores the former and stores null for the latter, so a misspelt payload is lost without a word.
*/
alter table skep.queue add column is_strict boolean not null default false;
