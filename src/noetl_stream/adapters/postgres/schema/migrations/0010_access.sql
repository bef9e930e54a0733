-- Who may do what: API tokens, and the record of calls. Source: issue 4 "Who may", docs/access.md.

create table noetl.api_token (
    id            text collate "C" primary key,
    name          text collate "C" not null,
    role          text not null check (role in ('viewer', 'operator', 'author', 'admin')),
    paths         text[] not null,
    secret_hash   bytea not null,
    created_ms    bigint not null,
    created_by    text not null,
    expires_ms    bigint,
    last_used_ms  bigint,
    revoked_ms    bigint,
    revoked_by    text
);
comment on table noetl.api_token is 'what opens the gateway; rows stay when a token is revoked or has expired';
comment on column noetl.api_token.paths is 'playbook paths it covers, and what is below them; none: all';
comment on column noetl.api_token.secret_hash is 'SHA-256; the secret itself is kept nowhere';
create unique index api_token_name on noetl.api_token (name) where revoked_ms is null;

create table noetl.audit (
    number           bigint generated always as identity primary key,
    at_ms            bigint not null,
    principal        text not null,
    role             text not null,
    method           text not null,
    operation        text not null,
    target           text not null,
    correlation_id   text not null,
    remote           text not null,
    idempotency_key  text not null
);
comment on table noetl.audit is 'calls that change something, written before they are done, and calls that were refused';
create index audit_principal on noetl.audit (principal, number);

create table noetl.audit_answer (
    number  bigint primary key references noetl.audit (number),
    status  integer not null,
    reason  text not null,
    made    text not null
);
comment on table noetl.audit_answer is 'how each of them was answered, written afterwards';

create function noetl.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% is only ever added to', tg_table_name;
end $$;
create trigger append_only before update or delete or truncate on noetl.audit
    for each statement execute function noetl.refuse_change();
create trigger append_only before update or delete or truncate on noetl.audit_answer
    for each statement execute function noetl.refuse_change();
