-- Deletes what is left of an ended execution after its journal. Returns no row if it does not exist or has not ended.
select noetl.delete_execution(:execution_id, :terms)
