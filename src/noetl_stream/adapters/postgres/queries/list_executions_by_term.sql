-- The term's rows are in order; each is looked up by itself. Joined otherwise, the whole table could be read to the first.
select x.*
from noetl.execution_term t
cross join lateral (
    select execution_id, status, path, version, started_ms, finished_ms, digest, updated_ms, error, labels
    from noetl.execution x
    where x.execution_id = t.execution_id and {conditions}
    offset 0
) as x
where (t.term, t.execution_id) < ($4, $2)
  and (t.term, t.execution_id) >= ($4, $3)
  and {terms}
order by t.term desc, t.execution_id desc
limit $1
