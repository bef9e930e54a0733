-- How far the owners of partitions are behind EVENTS, so that gateways need not read it. Source: PROTOCOL §2.

alter table noetl.partition add column behind bigint not null default 0;
comment on column noetl.partition.behind is
    'messages that it was behind EVENTS when its lease was last renewed, on the average of its owner''s partitions';
