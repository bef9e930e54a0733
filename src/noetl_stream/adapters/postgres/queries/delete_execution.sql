-- Deletes what is left of an ended execution after its journal. Returns no row if it does not exist or has not ended.
with gone as (
    delete from noetl.execution where execution_id = :execution_id and finished_ms is not null returning execution_id
),
requests as (delete from noetl.request r using gone where r.execution_id = gone.execution_id),
timers as (delete from noetl.timer t using gone where t.execution_id = gone.execution_id),
messages as (delete from noetl.inbox i using gone where i.execution_id = gone.execution_id),
uses as (delete from noetl.object_use u using gone where u.execution_id = gone.execution_id),
terms as (
    delete from noetl.execution_term t using gone
    where t.term = any(:terms::text[]) and t.execution_id = gone.execution_id
)
select 1 from gone
