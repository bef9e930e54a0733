select noetl.discard_dead_letter(:id, :by, :at_ms)
