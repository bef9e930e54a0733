-- The conditions are put in by the reader: one that may be null would keep its index from being used.
select execution_id, status, path, version, started_ms, finished_ms, digest, updated_ms, error, labels
from noetl.execution x
where execution_id < $2
  and execution_id >= $3
  and {conditions}
order by execution_id desc
limit $1
