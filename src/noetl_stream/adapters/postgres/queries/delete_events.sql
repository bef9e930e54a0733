-- The first entries of an ended execution's journal.
delete from noetl.event
where execution_id = :execution_id
  and position <= (select min(position) + :limit - 1 from noetl.event where execution_id = :execution_id)
  and exists (select from noetl.execution where execution_id = :execution_id and finished_ms is not null)
returning 1
