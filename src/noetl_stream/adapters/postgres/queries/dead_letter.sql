select number, id, at_ms, source, partition, execution_id, subject, reason, body, size, source_seq,
       state, settled_ms, settled_by
from noetl.dead_letter
where id = $1
