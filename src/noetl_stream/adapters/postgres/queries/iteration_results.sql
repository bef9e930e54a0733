-- Entries that may hold such events: their report is about the step run, or what follows from them names it.
select :stored_entry.columns
from noetl.event
where execution_id = :execution_id
  and position > :after
  and (step_run_id = :step_run_id or decisions::text like '%' || :step_run_id || '%')
order by position
limit :limit
