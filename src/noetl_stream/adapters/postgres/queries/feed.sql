-- A tick whose executions are all deleted gives one row without an event, so that readers get past it.
select f.partition, f.tick, row_number() over (partition by f.partition, f.tick order by e.n, e.position) - 1,
       coalesce(e.execution_id, ''), coalesce(e.trace_id, ''), coalesce(e.path, ''),
       e.position, e.name, e.source, e.at_ms, e.step_run_id, e.report_id, e.number, e.data, e.cause
from unnest($1::int[], $2::bigint[]) as seen (partition, tick)
cross join lateral (
    select * from noetl.feed where partition = seen.partition and tick > seen.tick order by tick limit $3
) f
left join lateral (
    select x.n, d.trace_id, d.path, v.*
    from json_array_elements(f.entries) with ordinality as x (entry, n)
    join noetl.execution d on d.execution_id = x.entry ->> 0
    join noetl.event v
        on v.execution_id = x.entry ->> 0
        and v.position between (x.entry ->> 1)::int and (x.entry ->> 2)::int
) e on true
order by f.partition, f.tick, e.n, e.position
