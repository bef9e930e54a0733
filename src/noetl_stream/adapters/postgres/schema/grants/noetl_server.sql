-- A server folds, commits ticks, and hands out credentials, which it writes to the audit. It deletes ended executions, by
-- functions, and makes and drops months of the journal. It writes no token, no grants and no catalog entry.
grant usage on schema noetl to noetl_server;
grant execute on function
    noetl.fail_fence(),
    noetl.record_credential_use(text, text, bytea),
    noetl.record_given_value(text, text, integer, text, bytea, integer, bigint),
    noetl.inherit_credential_uses(text[], text[], integer),
    noetl.begin_deleting(text),
    noetl.delete_events(text, integer),
    noetl.delete_execution(text, text[]),
    noetl.make_months(integer),
    noetl.drop_empty_months(),
    noetl.trim_dead_letters(bigint, bigint, bigint, integer)
    to noetl_server;

grant select on
    noetl.migration, noetl.meta, noetl.catalog, noetl.credential, noetl.grant_revision, noetl.event_month
    to noetl_server;
-- What it archives shows no value that an execution was given.
grant select on noetl.credential_use, noetl.former_credential to noetl_server;
grant update (events_floor) on noetl.meta to noetl_server;
grant select, update (wanted_ms), delete on noetl.bundle to noetl_server;
grant select, update (epoch, owner, backend, lease_until, given_back, crashes, folding, suspect, suspicions,
    tick, published_tick, last_seq, last_ms, generation, behind) on noetl.partition to noetl_server;

grant select, insert, update (live_until), delete on noetl.server to noetl_server;
grant select, insert on noetl.event, noetl.playbook to noetl_server;
-- Those of aggregates, which never end, are trimmed.
grant select, insert, delete on noetl.request to noetl_server;
grant select, insert, update on noetl.execution to noetl_server;
grant select, insert, update (execution_id, claimed_at) on noetl.execution_key to noetl_server;
grant select, insert, update, delete on noetl.snapshot to noetl_server;
grant select, insert, update (due_ms), delete on noetl.timer to noetl_server;
grant select, insert, delete on noetl.inbox to noetl_server;
grant select, insert on noetl.object_use to noetl_server;
grant select, insert, update (position, state, updated_ms), delete on noetl.aggregate to noetl_server;
grant select, insert, update (at_ms, status, execution_id, body), delete on noetl.aggregate_history to noetl_server;
grant select, insert, update (granted_ms, yields, body), delete on noetl.limit_slot to noetl_server;
-- Whether who has registered a schedule may still start what it starts.
grant select (name, role, paths, expires_ms, revoked_ms) on noetl.api_token to noetl_server;
grant insert on noetl.execution_term, noetl.dropped_term, noetl.dead_letter, noetl.stale_report to noetl_server;
-- Which lost messages have their letter already.
grant select (id) on noetl.dead_letter to noetl_server;

-- Locking a row that is trimmed needs the right to update one of its columns.
grant select, insert, update (at_ms), delete on noetl.feed to noetl_server;
grant select, insert, update (tick) on noetl.feed_floor, noetl.feed_reader to noetl_server;

-- The entry's own number comes back from its insertion, which needs the right to read it.
grant select (number, at_ms) on noetl.audit to noetl_server;
grant insert (at_ms, principal, role, method, operation, target, correlation_id, remote, idempotency_key)
    on noetl.audit to noetl_server;
grant insert (number, at_ms, status, reason, made, left_out) on noetl.audit_answer to noetl_server;
grant usage on sequence noetl.audit_number to noetl_server;
