select entry.*
from unnest(:execution_ids::text[], :positions::int[]) as wanted (execution_id, after)
cross join lateral (
    select e.execution_id, :stored_entry.columns
    from noetl.event e
    where e.execution_id = wanted.execution_id and e.position > wanted.after
    order by e.position
    limit :limit
) entry
order by entry.execution_id, entry.position
