-- Entries of a journal, by the positions of their first events.
select :stored_entry.columns
from noetl.event
where execution_id = :execution_id
  and position = any(:positions)
order by position
