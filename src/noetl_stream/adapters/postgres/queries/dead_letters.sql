select number, id, at_ms, source, partition, execution_id, subject, reason, ''::bytea, size, source_seq,
       state, settled_ms, settled_by
from noetl.dead_letter
where state = 'waiting' and ($2::bigint is null or number < $2)
order by number desc
limit $1
