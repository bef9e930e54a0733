-- The sequences of the schema by name.
select relname::text from pg_class where relnamespace = 'noetl'::regnamespace and relkind = 'S' order by relname
