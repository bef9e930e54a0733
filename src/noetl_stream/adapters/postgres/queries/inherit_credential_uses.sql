-- Hides in each heir the newest values that its giver was given.
select noetl.inherit_credential_uses(:givers::text[], :heirs::text[], :most)
