select number, id, at_ms, source, partition, execution_id, subject, reason, ''::bytea as body, size, source_seq,
       state, settled_ms, settled_by
from noetl.dead_letter
where state = 'waiting' and (:before::bigint is null or number < :before)
order by number desc
limit :limit
