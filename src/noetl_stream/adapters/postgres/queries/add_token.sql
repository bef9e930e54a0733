-- Returns no row if an unrevoked token has that name, or if one has that id.
insert into noetl.api_token (:token.columns)
values (:token.values)
on conflict do nothing
returning id
