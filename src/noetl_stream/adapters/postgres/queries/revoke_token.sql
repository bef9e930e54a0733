-- The first revocation stays.
update noetl.api_token
set revoked_by = case when revoked_ms is null then $3 else revoked_by end,
    revoked_ms = coalesce(revoked_ms, $2)
where id = $1
returning id
