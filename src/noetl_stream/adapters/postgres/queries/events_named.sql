select :stored_event.columns
from noetl.event
where execution_id = :execution_id and position > :after and name = any(:names::text[])
order by position
limit :limit
