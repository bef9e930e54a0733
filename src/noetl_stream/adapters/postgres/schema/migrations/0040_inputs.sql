-- What else executions are found by: inputs, the step that failed, workers, and how long they took. Source: LANGUAGE §9 "Finding".
-- What ended before has no terms of these: it is found by them no more than if it had been asked for without.

alter table noetl.execution add column inputs json not null default '{}';
alter table noetl.execution add column failed_step text not null default '';
alter table noetl.execution add column workers json not null default '[]';
comment on column noetl.execution.inputs is 'scalars of what it was started with, by path: what it is found by';
comment on column noetl.execution.failed_step is 'the step that failed it; empty if none did';
comment on column noetl.execution.workers is 'the first that ran its steps, by name';
comment on table noetl.execution_term is
    'label:name=value, key:…, input:path=value, step:name that failed, worker:name, took:seconds at least, word:… of the error';

-- A server drops terms, as of a label that has another value, and cannot read any: it inserts them into this view.
create view noetl.dropped_term as select ''::text as term, ''::text as execution_id where false;
comment on view noetl.dropped_term is 'what is inserted here is no longer a term of its execution';

create function noetl.drop_term() returns trigger
language plpgsql security definer set search_path = noetl, pg_temp as $$
begin
    delete from execution_term where term = new.term and execution_id = new.execution_id;
    return new;
end $$;
create trigger drop_term instead of insert on noetl.dropped_term for each row execute function noetl.drop_term();
