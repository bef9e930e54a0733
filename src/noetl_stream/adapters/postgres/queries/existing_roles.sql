select rolname::text from pg_roles where rolname = any(:roles::text[]) order by rolname
