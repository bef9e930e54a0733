-- From the entry that holds the first event after :after, or begins with it. An entry has one event at least.
select :stored_entry.columns
from noetl.event
where execution_id = :execution_id
  and position >= coalesce(
      (select max(position) from noetl.event where execution_id = :execution_id and position <= :after + 1), 0)
order by position
limit :limit
