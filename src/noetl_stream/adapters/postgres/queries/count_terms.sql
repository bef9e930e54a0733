-- How many of each term, at most $1, there are to read.
select (
    select count(*)
    from (
        select
        from noetl.execution_term t
        where (t.term, t.execution_id) < (wanted.term, $2) and (t.term, t.execution_id) >= (wanted.term, $3)
        limit $1
    ) as counted
)
from unnest($4::text[]) with ordinality as wanted (term, number)
order by number
