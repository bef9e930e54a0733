select found.*
from unnest(:execution_ids::text[]) as wanted (execution_id)
cross join lateral (
    select :snapshots.columns
    from noetl.snapshot s
    where s.execution_id = wanted.execution_id and (:through::int is null or s.position <= :through)
    order by s.position desc
    limit 1
) found
