select :stored_entry.columns
from noetl.event
where execution_id = :execution_id and position > :after
order by position
limit :limit
