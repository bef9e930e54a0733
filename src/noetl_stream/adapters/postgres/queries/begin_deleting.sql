delete from noetl.event
where execution_id = $1
  and position = 1
  and exists (select from noetl.execution where execution_id = $1 and finished_ms is not null)
