-- Calls that may be made again without doing anything twice. Source: PROTOCOL §1 "Request rows".

create table noetl.idempotency (
    tenant        text collate "C" not null,
    key           text collate "C" not null,
    caller        text collate "C" not null,
    content_hash  bytea not null,
    execution_id  text collate "C" not null,
    request_id    text collate "C" not null,
    claimed_at    timestamptz not null default now(),
    status        integer,
    headers       json,
    body          bytea,
    primary key (tenant, caller, key)
);
comment on table noetl.idempotency is 'by Idempotency-Key: the ids drawn for the call, and its answer; forgotten after a day';
comment on column noetl.idempotency.content_hash is 'SHA-256 of the call that came first with the key';
comment on column noetl.idempotency.execution_id is 'the id of the execution that the call starts, if it starts one';
comment on column noetl.idempotency.status is 'null: not answered yet; the call may be done again under the same ids';
create index idempotency_claimed_at on noetl.idempotency (claimed_at);
