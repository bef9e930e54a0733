select execution_id, partition, status, path, version, digest, position, started_ms, updated_ms, finished_ms,
       result, error, ctx, discarded
from noetl.execution
where execution_id = any($1::text[])
