-- One tick, whole or not at all. PROTOCOL §2 "Lease and fence"; HOT_PATH §5 "Two commit shapes".
-- The rows are locked in id order, so that ticks and renewals never wait for each other in a circle.
with fence as materialized (
    select p.id, v.last_seq, v.last_ms, v.published_tick
    from unnest($2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
        as v (id, epoch, tick, last_seq, last_ms, published_tick)
    join noetl.partition p on p.id = v.id and p.epoch = v.epoch and p.tick = v.tick and p.owner = $1
    order by p.id
    for update of p
),
moved as (
    update noetl.partition p
    set tick = p.tick + 1,
        last_seq = fence.last_seq,
        last_ms = fence.last_ms,
        published_tick = fence.published_tick,
        crashes = 0,
        backend = pg_backend_pid()
    from fence
    where p.id = fence.id
    returning 1
),
passed as materialized (
    select case
        when (select count(*) from moved) = cardinality($2::int[]) then true
        else noetl.fail_fence()
    end as ok
),
written_events as (
    insert into noetl.event
        (execution_id, position, name, source, at_ms, step_run_id, report_id, number, source_seq, data, cause)
    select e.*
    from unnest($8::text[], $9::int[], $10::text[], $11::text[], $12::bigint[], $13::text[], $14::text[], $15::int[],
                $16::bigint[], $17::json[], $18::int[]) as e
    cross join passed
    where passed.ok
),
written_executions as (
    insert into noetl.execution
        (execution_id, partition, status, path, version, digest, position, started_ms, updated_ms, finished_ms,
         result, error, ctx, discarded, trace_id, commands, children, looks_into, ctx_version, labels,
         rerun_of)
    select x.*
    from unnest($19::text[], $20::int[], $21::text[], $22::text[], $23::text[], $24::text[], $25::int[], $26::bigint[],
                $27::bigint[], $28::bigint[], $29::json[], $30::json[], $31::json[], $32::int[], $33::text[],
                $34::int[], $35::int[], $36::text[], $37::int[], $38::json[], $39::text[]) as x
    cross join passed
    where passed.ok
    on conflict (execution_id) do update
    set partition = excluded.partition,
        status = excluded.status,
        path = excluded.path,
        version = excluded.version,
        digest = excluded.digest,
        position = excluded.position,
        started_ms = excluded.started_ms,
        updated_ms = excluded.updated_ms,
        finished_ms = excluded.finished_ms,
        result = excluded.result,
        error = excluded.error,
        ctx = excluded.ctx,
        discarded = excluded.discarded,
        commands = excluded.commands,
        children = excluded.children,
        looks_into = excluded.looks_into,
        ctx_version = excluded.ctx_version
),
written_requests as (
    insert into noetl.request (request_id, execution_id, answer, position)
    select r.*
    from unnest($40::text[], $41::text[], $42::json[], $43::int[]) as r
    cross join passed
    where passed.ok
),
written_playbooks as (
    insert into noetl.playbook (digest, path, version, source)
    select b.*
    from unnest($44::text[], $45::text[], $46::text[], $47::text[]) as b
    cross join passed
    where passed.ok
    on conflict (digest) do nothing
),
written_timers as (
    insert into noetl.timer (execution_id, timer_id, partition, due_ms, purpose)
    select t.*
    from unnest($48::text[], $49::text[], $50::int[], $51::bigint[], $52::text[]) as t
    cross join passed
    where passed.ok
    on conflict (execution_id, timer_id) do update set due_ms = excluded.due_ms
),
deleted_timers as (
    delete from noetl.timer t
    using unnest($53::text[], $54::text[]) as gone (execution_id, timer_id), passed
    where passed.ok and t.execution_id = gone.execution_id and t.timer_id = gone.timer_id
),
written_inbox as (
    insert into noetl.inbox (id, partition, execution_id, body)
    select i.*
    from unnest($55::text[], $56::int[], $57::text[], $58::json[]) as i
    cross join passed
    where passed.ok
),
deleted_inbox as (
    delete from noetl.inbox i
    using unnest($59::bigint[]) as folded (seq), passed
    where passed.ok and i.seq = folded.seq
),
written_terms as (
    insert into noetl.execution_term (term, execution_id)
    select t.*
    from unnest($60::text[], $61::text[]) as t
    cross join passed
    where passed.ok
    on conflict do nothing
),
written_feed as (
    insert into noetl.feed (partition, tick, at_ms, entries)
    select f.partition, f.tick, (extract(epoch from clock_timestamp()) * 1000)::bigint, f.entries
    from unnest($62::int[], $63::bigint[], $64::json[]) as f (partition, tick, entries)
    cross join passed
    where passed.ok
)
select ok from passed
