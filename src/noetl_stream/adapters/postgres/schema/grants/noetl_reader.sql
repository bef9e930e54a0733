-- People and dashboards read everything but secrets: no sealed value, no hash of a token, no stored answer, which may
-- hold a new token.
grant usage on schema noetl to noetl_reader;
grant select on
    noetl.migration, noetl.meta, noetl.partition, noetl.event, noetl.event_month, noetl.history, noetl.request, noetl.playbook,
    noetl.execution, noetl.execution_term, noetl.execution_key, noetl.snapshot, noetl.timer, noetl.inbox, noetl.object_use,
    noetl.credential_use, noetl.feed, noetl.feed_floor, noetl.dead_letter, noetl.stale_report, noetl.catalog,
    noetl.catalog_deleted, noetl.audit, noetl.audit_answer, noetl.audit_chain, noetl.aggregate, noetl.aggregate_history,
    noetl.limit_slot, noetl.grant_revision, noetl.bundle
    to noetl_reader;
grant select (name, kind, description, tags, version, key_id, number, created_at, updated_at)
    on noetl.credential to noetl_reader;
grant select (number, name, version, key_id, replaced_at) on noetl.former_credential to noetl_reader;
grant select (id, name, role, paths, created_ms, created_by, expires_ms, last_used_ms, revoked_ms, revoked_by)
    on noetl.api_token to noetl_reader;
grant select (token_id, created_ms, expires_ms) on noetl.sign_in_code to noetl_reader;
grant select (token_id, created_ms, expires_ms) on noetl.browser_session to noetl_reader;
grant select (tenant, key, caller, execution_id, request_id, claimed_at, status)
    on noetl.idempotency to noetl_reader;
