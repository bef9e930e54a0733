-- A letter from the inbox is returned to it in the same transaction.
select noetl.requeue_dead_letter(:letter_id, :by, :at_ms)
