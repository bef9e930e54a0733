-- A path and each path below it that has executions, from one to the next by the index. '0' sorts after '/'.
with recursive below (path) as (
    select :path::text collate "C"
    union all
    select (
        select min(x.path) from noetl.execution x
        where x.path > greatest(below.path, :path || '/') and x.path < :path || '0'
    )
    from below
    where below.path is not null
)
select path from below where path is not null
