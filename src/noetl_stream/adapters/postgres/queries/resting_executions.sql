select execution_id
from noetl.execution
where finished_ms is null and partition = any(:partitions::int[]) and commands = 0 and looks_into is null
