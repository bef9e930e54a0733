-- The first $2 entries of an ended execution's journal.
delete from noetl.event
where execution_id = $1
  and position <= (select min(position) + $2 - 1 from noetl.event where execution_id = $1)
  and exists (select from noetl.execution where execution_id = $1 and finished_ms is not null)
returning 1
