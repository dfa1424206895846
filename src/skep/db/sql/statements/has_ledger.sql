/* has_ledger: whether the migration runner has been here. */
select to_regclass('skep.code_object') is not null;
