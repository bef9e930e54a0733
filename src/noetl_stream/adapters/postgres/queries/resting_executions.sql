select execution_id
from noetl.execution
where finished_ms is null and partition = any(:partition_ids::int[]) and commands = 0 and looks_into is null
