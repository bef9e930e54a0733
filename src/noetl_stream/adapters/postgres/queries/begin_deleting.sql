select noetl.begin_deleting(:execution_id)
