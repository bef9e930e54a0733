-- What an execution holds or waits for, and its place in the queue.
select
    :limit_slots.columns,
    case when s.granted_ms is null then (
        select count(*)
        from noetl.limit_slot w
        where w.limit_id = s.limit_id and w.granted_ms is null and w.number <= s.number
    ) else 0 end as place
from noetl.limit_slot s
where s.execution_id = :execution_id
order by s.limit_id, s.number
limit :limit
