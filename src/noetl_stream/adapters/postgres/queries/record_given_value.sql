-- Keeps a value with the execution that was given it, and of too many from one giver the newest.
select noetl.record_given_value(:execution_id, :name, :version, :key_id, :sealed, :most, :most_bytes)
