-- One tick, all or nothing. PROTOCOL §2 "Lease and fence"; HOT_PATH §5 "Two commit shapes".
-- Rows are locked in id order, so that ticks and renewals never deadlock.
with fence as materialized (
    select p.id, v.last_seq, v.last_ms, v.published_tick, v.crashes
    from unnest(:partitions.arrays) as v (:partitions.columns)
    join noetl.partition p on p.id = v.id and p.epoch = v.epoch and p.tick = v.tick and p.owner = :owner
    order by p.id
    for update of p
),
moved as (
    update noetl.partition p
    set tick = p.tick + 1,
        last_seq = fence.last_seq,
        last_ms = fence.last_ms,
        published_tick = fence.published_tick,
        crashes = fence.crashes,
        folding = null,
        suspicions = case when fence.crashes = 0 or p.folding = p.suspect then 0 else p.suspicions end,
        backend = pg_backend_pid()
    from fence
    where p.id = fence.id
    returning 1
),
passed as materialized (
    select case
        when (select count(*) from moved) = cardinality(:partitions.id) then true
        else noetl.fail_fence()
    end as ok
),
written_entries as (
    insert into noetl.event (:entries.columns)
    select e.*
    from unnest(:entries.arrays) as e
    cross join passed
    where passed.ok
),
written_executions as (
    insert into noetl.execution (:executions.columns)
    select x.*
    from unnest(:executions.arrays) as x
    cross join passed
    where passed.ok
    on conflict (execution_id) do update set :executions.updates
),
written_requests as (
    insert into noetl.request (:requests.columns)
    select r.*
    from unnest(:requests.arrays) as r
    cross join passed
    where passed.ok
),
written_playbooks as (
    insert into noetl.playbook (:playbooks.columns)
    select b.*
    from unnest(:playbooks.arrays) as b
    cross join passed
    where passed.ok
    on conflict (digest) do nothing
),
written_timers as (
    insert into noetl.timer (:timers.columns)
    select t.*
    from unnest(:timers.arrays) as t
    cross join passed
    where passed.ok
    on conflict (execution_id, timer_id) do update set due_ms = excluded.due_ms
),
deleted_timers as (
    delete from noetl.timer t
    using unnest(:timers_gone.arrays) as gone (:timers_gone.columns), passed
    where passed.ok and t.execution_id = gone.execution_id and t.timer_id = gone.timer_id
),
written_inbox as (
    insert into noetl.inbox (:inbox.columns)
    select i.*
    from unnest(:inbox.arrays) as i
    cross join passed
    where passed.ok
),
deleted_inbox as (
    delete from noetl.inbox i
    using unnest(:inbox_folded::bigint[]) as folded (seq), passed
    where passed.ok and i.seq = folded.seq
),
written_terms as (
    insert into noetl.execution_term (:terms.columns)
    select t.*
    from unnest(:terms.arrays) as t
    cross join passed
    where passed.ok
    on conflict do nothing
),
written_feed as (
    insert into noetl.feed (:feed.columns, at_ms)
    select f.*, (extract(epoch from clock_timestamp()) * 1000)::bigint
    from unnest(:feed.arrays) as f
    cross join passed
    where passed.ok
)
select ok from passed
