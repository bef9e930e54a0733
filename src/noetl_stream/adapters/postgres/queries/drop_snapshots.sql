delete from noetl.snapshot where execution_id = :execution_id
