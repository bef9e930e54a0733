-- One tick, all or nothing. PROTOCOL §2 "Lease and fence"; HOT_PATH §5 "Two commit shapes".
-- Of the parts, each under a line "-- part", a tick takes those it has rows for: a plan costs by its nodes, not its rows.

-- part partitions: one
moved as (
    update noetl.partition p
    set tick = p.tick + 1,
        last_seq = v.last_seq,
        last_ms = v.last_ms,
        published_tick = v.published_tick,
        crashes = v.crashes,
        folding = null,
        suspicions = case when v.crashes = 0 or p.folding = p.suspect then 0 else p.suspicions end,
        backend = pg_backend_pid()
    from :partitions.rows as v (:partitions.columns)
    where p.id = v.id and p.epoch = v.epoch and p.tick = v.tick and p.owner = :owner
    returning 1
),
passed as materialized (
    select case when exists (select from moved) then true else noetl.fail_fence() end as ok
)

-- part partitions: several
-- Rows are locked in id order, so that ticks and renewals never deadlock.
fence as materialized (
    select p.id, v.last_seq, v.last_ms, v.published_tick, v.crashes
    from :partitions.rows as v (:partitions.columns)
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
)

-- part entries
written_entries as (
    insert into noetl.event (:entries.columns)
    select e.*
    from :entries.rows as e
    cross join passed
    where passed.ok
)

-- part executions
written_executions as (
    insert into noetl.execution as stored (:executions.columns)
    select x.*
    from :executions.rows as x
    cross join passed
    where passed.ok
    on conflict (execution_id) do update set :executions.updates
)

-- part requests
written_requests as (
    insert into noetl.request (:requests.columns)
    select r.*
    from :requests.rows as r
    cross join passed
    where passed.ok
)

-- part playbooks
written_playbooks as (
    insert into noetl.playbook (:playbooks.columns)
    select b.*
    from :playbooks.rows as b
    cross join passed
    where passed.ok
    on conflict (digest) do nothing
)

-- part timers
written_timers as (
    insert into noetl.timer (:timers.columns)
    select t.*
    from :timers.rows as t
    cross join passed
    where passed.ok
    on conflict (execution_id, timer_id) do update set due_ms = excluded.due_ms
)

-- part timers_gone
deleted_timers as (
    delete from noetl.timer t
    using :timers_gone.rows as gone (:timers_gone.columns), passed
    where passed.ok and t.execution_id = gone.execution_id and t.timer_id = gone.timer_id
)

-- part inbox
written_inbox as (
    insert into noetl.inbox (:inbox.columns)
    select i.*
    from :inbox.rows as i
    cross join passed
    where passed.ok
)

-- part inbox_folded
deleted_inbox as (
    delete from noetl.inbox i
    using unnest(:inbox_folded::bigint[]) as folded (seq), passed
    where passed.ok and i.seq = folded.seq
)

-- part terms
written_terms as (
    insert into noetl.execution_term (:terms.columns)
    select t.*
    from :terms.rows as t
    cross join passed
    where passed.ok
    on conflict do nothing
)

-- part terms_gone
deleted_terms as (
    insert into noetl.dropped_term (:terms_gone.columns)
    select gone.*
    from :terms_gone.rows as gone
    cross join passed
    where passed.ok
)

-- part snapshots
-- A cache: what another tick left here must not refuse this one.
written_snapshots as (
    insert into noetl.snapshot (:snapshots.columns)
    select s.*
    from :snapshots.rows as s
    cross join passed
    where passed.ok
    on conflict (execution_id, position) do update set :snapshots.updates
)

-- part feed
written_feed as (
    insert into noetl.feed (:feed.columns, at_ms)
    select f.*, (extract(epoch from clock_timestamp()) * 1000)::bigint
    from :feed.rows as f
    cross join passed
    where passed.ok
)

-- part aggregates
written_aggregates as (
    insert into noetl.aggregate as stored (:aggregates.columns)
    select a.*
    from :aggregates.rows as a
    cross join passed
    where passed.ok
    on conflict (id) do update set :aggregates.updates
)

-- part aggregates_gone
deleted_aggregates as (
    delete from noetl.aggregate a
    using :aggregates_gone.rows as gone (:aggregates_gone.columns), passed
    where passed.ok and a.id = gone.id
),
deleted_history as (
    delete from noetl.aggregate_history h
    using :aggregates_gone.rows as gone (:aggregates_gone.columns), passed
    where passed.ok and h.aggregate_id = gone.id
)

-- part history
written_history as (
    insert into noetl.aggregate_history as stored (:history.columns)
    select h.*
    from :history.rows as h
    cross join passed
    where passed.ok
    on conflict (aggregate_id, number) do update set :history.updates
)

-- part history_gone
trimmed_history as (
    delete from noetl.aggregate_history h
    using :history_gone.rows as gone (:history_gone.columns), passed
    where passed.ok and h.aggregate_id = gone.aggregate_id and h.number <= gone.through
)

-- part limit_slots
written_limit_slots as (
    insert into noetl.limit_slot as stored (:limit_slots.columns)
    select s.*
    from :limit_slots.rows as s
    cross join passed
    where passed.ok
    on conflict (limit_id, holder) do update set :limit_slots.updates
)

-- part limit_slots_gone
deleted_limit_slots as (
    delete from noetl.limit_slot s
    using :limit_slots_gone.rows as gone (:limit_slots_gone.columns), passed
    where passed.ok and s.limit_id = gone.limit_id and s.holder = gone.holder
)

-- part requests_gone
trimmed_requests as (
    delete from noetl.request r
    using :requests_gone.rows as gone (:requests_gone.columns), passed
    where passed.ok and r.execution_id = gone.execution_id and r.position <= gone.through
)
