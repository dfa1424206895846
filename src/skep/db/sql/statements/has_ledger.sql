-- has_ledger: whether the migration runner has run here.
select to_regclass('skep.code_object') is not null;
