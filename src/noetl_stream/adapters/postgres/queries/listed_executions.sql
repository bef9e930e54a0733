select :listed.columns
from noetl.execution
where execution_id = any(:execution_ids::text[])
