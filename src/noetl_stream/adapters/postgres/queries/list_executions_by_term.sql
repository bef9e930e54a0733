-- The term's rows are in order, and each execution is looked up separately. A plain join could read the whole table first.
select x.*
from noetl.execution_term t
cross join lateral (
    select :listed.columns
    from noetl.execution x
    where x.execution_id = t.execution_id and {conditions}
    offset 0
) as x
where (t.term, t.execution_id) < (:term, :above)
  and (t.term, t.execution_id) >= (:term, :lowest)
  and {terms}
order by t.term desc, t.execution_id desc
limit :limit
