-- These paths and each path below them that has executions, from one to the next by the index. None of them is below
-- another. '0' sorts after '/'.
with recursive below (root, path) as (
    select root collate "C", root collate "C" from unnest(:paths::text[]) as given (root)
    union all
    select below.root, (
        select min(x.path) from noetl.execution x
        where x.path > greatest(below.path, below.root || '/') and x.path < below.root || '0'
    )
    from below
    where below.path is not null
)
select path from below where path is not null
