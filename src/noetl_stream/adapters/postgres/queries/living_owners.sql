-- Servers that hold a partition.
select distinct owner from noetl.partition
where owner is not null and not given_back and lease_until > now()
order by owner
