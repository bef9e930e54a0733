-- What a user may do who sets up this database, and what is there already.
select
  current_user as name,
  current_database() as database,
  pg_is_in_recovery() as is_standby,
  to_regclass('noetl.migration') is not null as has_schema,
  case when to_regnamespace('noetl') is null
    then has_database_privilege(current_user, current_database(), 'create')
    else (select pg_has_role(current_user, nspowner, 'usage') from pg_namespace where nspname = 'noetl')
  end as may_migrate,
  (select rolsuper or rolcreaterole from pg_roles where rolname = current_user) as may_create_roles
