-- The first entries of an ended execution's journal.
select noetl.delete_events(:execution_id, :limit)
