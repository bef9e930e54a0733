-- Browser sessions of API tokens, and the codes that open them. Source: docs/reference/access.md.

create table noetl.sign_in_code (
    code_hash   bytea primary key,
    token_id    text collate "C" not null references noetl.api_token (id),
    created_ms  bigint not null,
    expires_ms  bigint not null
);
comment on table noetl.sign_in_code is 'codes not yet exchanged for a session; a code is removed by its exchange';
comment on column noetl.sign_in_code.code_hash is 'SHA-256; the code itself is kept nowhere';
create index sign_in_code_token on noetl.sign_in_code (token_id, created_ms);

create table noetl.browser_session (
    session_hash  bytea primary key,
    csrf_hash     bytea not null,
    token_id      text collate "C" not null references noetl.api_token (id),
    created_ms    bigint not null,
    expires_ms    bigint not null
);
comment on table noetl.browser_session is 'signed-in browsers, each with the rights of its token';
comment on column noetl.browser_session.session_hash is 'SHA-256 of the cookie';
comment on column noetl.browser_session.csrf_hash is 'SHA-256 of what changes need beside the cookie';
create index browser_session_token on noetl.browser_session (token_id, created_ms);
