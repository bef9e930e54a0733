select coalesce(max(seq), 0) from noetl.inbox
