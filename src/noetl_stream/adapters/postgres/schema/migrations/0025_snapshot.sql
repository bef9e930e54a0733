-- States of executions with long journals, so that these need not be replayed. Source: PROTOCOL §5 "Snapshots".

create table noetl.snapshot (
    execution_id  text collate "C" not null,
    position      integer not null,
    format        integer not null,
    digest        text not null,
    body          bytea not null,
    primary key (execution_id, position)
);
comment on table noetl.snapshot is 'states at some positions of long journals; a cache: any row may be deleted';
comment on column noetl.snapshot.format is 'of the body; a server reads its own format only';
comment on column noetl.snapshot.digest is 'over execution, position, format and body; a row that does not match it is not used';

create function noetl.delete_snapshots() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    delete from snapshot where execution_id = old.execution_id;
    return null;
end $$;
create trigger delete_snapshots after delete on noetl.execution
    for each row execute function noetl.delete_snapshots();
