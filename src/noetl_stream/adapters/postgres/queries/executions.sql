select execution_id, partition, status, path, version, digest, position, started_ms, updated_ms, finished_ms,
       result, error, ctx, discarded, trace_id, commands, children, looks_into, ctx_version, labels, rerun_of
from noetl.execution
where execution_id = any($1::text[])
