select execution_id, digest
from noetl.execution
where finished_ms is null and partition = any(:partitions::int[])
