-- A tick whose executions are all deleted has one row without an event, so that readers get past it. Deleting executions
-- does not change the numbers of other events.
select f.partition, f.tick, coalesce(e.before + e.position - e.first, 0),
       coalesce(e.execution_id, ''), coalesce(e.trace_id, ''), coalesce(e.digest, ''), coalesce(e.path, ''),
       :stored_entry.columns
from unnest(:partition_ids::int[], :ticks::bigint[]) as seen (partition, tick)
cross join lateral (
    select partition, tick, entries from noetl.feed where partition = seen.partition and tick > seen.tick order by tick limit :limit
) f
left join lateral (
    select x.n, x.before, x.first, d.trace_id, d.digest, d.path, v.*
    from (
        select n, entry ->> 0 as execution_id, (entry ->> 1)::int as first, (entry ->> 2)::int as last,
               sum((entry ->> 2)::int - (entry ->> 1)::int + 1) over (order by n)
                   - ((entry ->> 2)::int - (entry ->> 1)::int + 1) as before
        from json_array_elements(f.entries) with ordinality as entries (entry, n)
    ) x
    join noetl.execution d on d.execution_id = x.execution_id
    join noetl.event v on v.execution_id = x.execution_id and v.position between x.first and x.last
) e on true
order by f.partition, f.tick, e.n, e.position
