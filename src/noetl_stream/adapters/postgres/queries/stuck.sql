-- Every waiting state names the row that will end it (PROTOCOL §1); these do not.
select x.execution_id
from noetl.execution x
where x.finished_ms is null
  and x.status not in ('paused', 'quarantined')
  and x.commands = 0
  and x.children = 0
  and x.looks_into is null
  and not exists (select from noetl.timer t where t.execution_id = x.execution_id)
  and not exists (select from noetl.inbox i where i.execution_id = x.execution_id)
  and not exists (select from noetl.limit_slot s where s.execution_id = x.execution_id)
  and not exists (
      select from noetl.inbox i
      where i.execution_id like 'limit-%' and i.body -> 'fact' ->> 'execution_id' = x.execution_id
  )
order by x.execution_id
limit :limit
