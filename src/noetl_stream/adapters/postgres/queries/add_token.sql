-- No row comes back when a token of that name is not revoked yet.
insert into noetl.api_token (:token.columns)
values (:token.values)
on conflict (name) where revoked_ms is null do nothing
returning id
