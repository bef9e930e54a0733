-- A gateway reads everything, and writes what people manage: the catalog, credentials, tokens, the audit. What an
-- execution is and has journalled it cannot write; it deletes ended ones and settles dead letters by functions.
grant usage on schema noetl to noetl_gateway;
grant execute on function
    noetl.begin_deleting(text),
    noetl.delete_events(text, integer),
    noetl.delete_execution(text, text[]),
    noetl.requeue_dead_letter(text, text, bigint),
    noetl.discard_dead_letter(text, text, bigint),
    noetl.trim_audit(bigint)
    to noetl_gateway;

grant select on
    noetl.migration, noetl.meta, noetl.partition, noetl.event, noetl.request, noetl.execution, noetl.execution_term,
    noetl.execution_key,
    noetl.snapshot, noetl.timer, noetl.inbox, noetl.object_use, noetl.credential_use, noetl.feed, noetl.feed_floor,
    noetl.dead_letter, noetl.server, noetl.aggregate, noetl.aggregate_history,
    noetl.limit_slot
    to noetl_gateway;

grant select, insert, delete on noetl.catalog to noetl_gateway;
grant select, insert, update (wanted_ms) on noetl.bundle to noetl_gateway;
grant select, insert, update (revision) on noetl.catalog_deleted to noetl_gateway;
grant select, insert on noetl.playbook to noetl_gateway;
grant select, insert, update (kind, description, tags, version, key_id, sealed, number, updated_at), delete
    on noetl.credential to noetl_gateway;
grant select, update (key_id, sealed) on noetl.former_credential to noetl_gateway;
grant select, insert, update (last_used_ms, revoked_ms, revoked_by) on noetl.api_token to noetl_gateway;
grant select, insert, delete on noetl.sign_in_code, noetl.browser_session to noetl_gateway;
grant select, insert on noetl.grant_revision to noetl_gateway;
-- It cannot say where in a chain a row belongs: that is for the trigger.
grant select on noetl.audit, noetl.audit_answer, noetl.audit_chain to noetl_gateway;
grant insert (at_ms, principal, role, method, operation, target, correlation_id, remote, idempotency_key)
    on noetl.audit to noetl_gateway;
grant insert (number, at_ms, status, reason, made, left_out) on noetl.audit_answer to noetl_gateway;
grant usage on sequence noetl.audit_number to noetl_gateway;
grant select, insert, update (status, headers, body, seed), delete on noetl.idempotency to noetl_gateway;
