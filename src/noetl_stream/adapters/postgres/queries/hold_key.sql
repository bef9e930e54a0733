-- Whoever holds it keeps it, but for a start that was refused, and one that was lost before it was committed.
insert into noetl.execution_key as held (path, key, execution_id)
values (:path, :key, :execution_id)
on conflict (path, key) do update
set (execution_id, claimed_at) = (
    select case when one.is_free then excluded.execution_id else held.execution_id end,
           case when one.is_free or held.execution_id = excluded.execution_id then now() else held.claimed_at end
    from (
        select case
            when x.execution_id is null then held.claimed_at < now() - make_interval(secs => :lost_after_s)
            else x.finished_ms is not null and x.key = ''
        end as is_free
        from (select held.execution_id) as h
        left join noetl.execution x on x.execution_id = h.execution_id
    ) as one
)
returning execution_id
