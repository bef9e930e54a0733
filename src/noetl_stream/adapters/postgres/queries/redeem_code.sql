-- Returns no row, and stores nothing, without a code that holds. Of the token's sessions, the newest :most stay.
with code as (
    delete from noetl.sign_in_code
    where code_hash = :code_hash and expires_ms > :created_ms::bigint
    returning token_id
),
gone as (
    delete from noetl.browser_session
    where expires_ms <= :created_ms::bigint
        or session_hash in (
            select session_hash from noetl.browser_session join code using (token_id)
            order by created_ms desc, session_hash
            offset :most::bigint - 1
        )
)
insert into noetl.browser_session (session_hash, csrf_hash, token_id, created_ms, expires_ms)
select :session_hash::bytea, :csrf_hash::bytea, token_id, :created_ms::bigint, :expires_ms::bigint
from code
returning token_id
