-- Every value given to these executions, and today's values of the same names; former ones first, oldest first.
select given_to.execution_id, shown.name, shown.version, shown.key_id, shown.sealed
from unnest(:execution_ids::text[]) as given_to (execution_id)
cross join lateral (
    select false as is_former, c.number, c.name, c.version, c.key_id, c.sealed
    from noetl.credential c
    where c.name in (select u.name from noetl.credential_use u where u.execution_id = given_to.execution_id)
    union all
    select true, f.number, f.name, f.version, f.key_id, f.sealed
    from noetl.credential_use u join noetl.former_credential f on f.number = u.number
    where u.execution_id = given_to.execution_id
    order by is_former, number desc
    limit :most
) as shown
order by given_to.execution_id, shown.is_former desc, shown.number
