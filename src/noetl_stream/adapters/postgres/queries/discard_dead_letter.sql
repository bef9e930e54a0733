select noetl.discard_dead_letter(:letter_id, :by, :at_ms)
