delete from noetl.event
where execution_id = :execution_id
  and position = 1
  and exists (select from noetl.execution where execution_id = :execution_id and finished_ms is not null)
