select execution_id, :stored_entry.columns
from noetl.event
where execution_id = any(:execution_ids::text[])
order by execution_id, position
