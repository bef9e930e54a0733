-- Which credentials were handed out for an execution: what is shown of it hides them. Source:
-- docs/reference/credentials.md.

create table noetl.credential_use (
    execution_id  text collate "C" not null,
    name          text collate "C" not null,
    primary key (execution_id, name)
);
comment on table noetl.credential_use is 'credentials that were handed out for an execution: their values are hidden in all that is shown of it';

create or replace function noetl.delete_execution(ended text, with_terms text[]) returns setof text
language sql security definer set search_path = noetl, pg_temp as $$
    with gone as (
        delete from execution where execution_id = ended and finished_ms is not null returning execution_id
    ),
    requests as (delete from request r using gone where r.execution_id = gone.execution_id),
    timers as (delete from timer t using gone where t.execution_id = gone.execution_id),
    messages as (delete from inbox i using gone where i.execution_id = gone.execution_id),
    credentials as (delete from credential_use c using gone where c.execution_id = gone.execution_id),
    uses as (delete from object_use u using gone where u.execution_id = gone.execution_id),
    terms as (
        delete from execution_term t using gone
        where t.term = any(with_terms) and t.execution_id = gone.execution_id
    )
    select execution_id from gone
$$;
