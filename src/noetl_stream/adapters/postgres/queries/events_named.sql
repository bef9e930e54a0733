-- Entries that may hold such events: their text names them.
select :stored_entry.columns
from noetl.event
where execution_id = :execution_id
  and position >= coalesce(
      (select max(position) from noetl.event where execution_id = :execution_id and position <= :after + 1), 0)
  and (data::text like any(:patterns::text[]) or decisions::text like any(:patterns::text[]))
order by position
limit :limit
