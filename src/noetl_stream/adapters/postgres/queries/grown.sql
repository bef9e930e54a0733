-- What the ticks after these have added. If some of them are trimmed from the feed, whole journals, and those of all
-- executions that have not ended.
with seen as materialized (
    select s.partition, s.tick, coalesce(floor.tick > s.tick, false) as trimmed
    from unnest(:partition_ids::int[], :ticks::bigint[]) as s (partition, tick)
    left join noetl.feed_floor floor on floor.partition = s.partition
)
select entry ->> 0, case when bool_or(seen.trimmed) then 1 else min((entry ->> 1)::int) end
from seen
join noetl.feed f on f.partition = seen.partition and f.tick > seen.tick
cross join json_array_elements(f.entries) as entry
group by 1
union
select e.execution_id, 1
from seen
join noetl.execution e on e.partition = seen.partition and e.finished_ms is null
where seen.trimmed
