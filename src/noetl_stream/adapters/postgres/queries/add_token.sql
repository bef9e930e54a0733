-- Returns no row if an unrevoked token has that name.
insert into noetl.api_token (:token.columns)
values (:token.values)
on conflict (name) where revoked_ms is null do nothing
returning id
