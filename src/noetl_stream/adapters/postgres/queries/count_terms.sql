-- How many rows a lookup by each term would read, counted up to a limit.
select (
    select count(*)
    from (
        select
        from noetl.execution_term t
        where (t.term, t.execution_id) < (wanted.term, :above) and (t.term, t.execution_id) >= (wanted.term, :lowest)
        limit :limit
    ) as counted
)
from unnest(:terms::text[]) with ordinality as wanted (term, number)
order by number
