-- What the connected user may do in the schema, and members of the role may not.
with everything (reason) as (
    select 'is a superuser' from pg_roles where rolname = current_user and rolsuper
    union all
    select 'owns the schema noetl' from pg_namespace where nspname = 'noetl' and pg_has_role(nspowner, 'usage')
)
select reason from everything
union all
select 'may ' || lower(privilege) || ' on ' || string_agg(relname, ', ' order by relname)
from pg_class
cross join unnest(array['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) as privilege
where not exists (select from everything)
  and relnamespace = to_regnamespace('noetl')
  and relkind in ('r', 'p', 'v')
  and not relispartition
  and has_table_privilege(pg_class.oid, privilege)
  and not coalesce((select has_table_privilege(r.oid, pg_class.oid, privilege) from pg_roles r where rolname = :role), false)
group by privilege
