-- Whether the value that was read is still the stored one; else nothing is recorded.
select noetl.record_credential_use(:execution_id, :name, :sealed)
