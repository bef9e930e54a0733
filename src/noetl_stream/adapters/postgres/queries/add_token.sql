-- No row comes back when a token of that name is not revoked yet.
insert into noetl.api_token
    (id, name, role, paths, secret_hash, created_ms, created_by, expires_ms, last_used_ms, revoked_ms, revoked_by)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
on conflict (name) where revoked_ms is null do nothing
returning id
