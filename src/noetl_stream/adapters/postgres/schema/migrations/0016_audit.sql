-- The audit in partitions by time, so that old entries go by truncating and not by deleting. Source:
-- docs/reference/access.md "Audit".
--
-- A ring of 16 partitions, each for a period of 30 days: none must be created in time, so no entry is ever refused for
-- lack of one. The ring is longer than entries are kept (400 days at most), so a period never meets the one before it
-- in its partition unless nothing was trimmed; then both go together when the later one is old.

alter table noetl.audit rename to audit_before;
alter table noetl.audit_answer rename to audit_answer_before;
drop index noetl.audit_principal;

create sequence noetl.audit_number;
comment on sequence noetl.audit_number is 'the order of audit entries';

create table noetl.audit (
    number           bigint not null default nextval('noetl.audit_number'),
    at_ms            bigint not null,
    principal        text not null,
    role             text not null,
    method           text not null,
    operation        text not null,
    target           text not null,
    correlation_id   text not null,
    remote           text not null,
    idempotency_key  text not null
) partition by list (((at_ms / 2592000000) % 16));
comment on table noetl.audit is 'calls that change something, written before they are done, and calls that were refused';
create index audit_by_number on noetl.audit (number);
create index audit_principal on noetl.audit (principal, number);

create table noetl.audit_answer (
    number    bigint not null,
    at_ms     bigint not null,
    status    integer not null,
    reason    text not null,
    made      text not null,
    left_out  bigint not null
) partition by list (((at_ms / 2592000000) % 16));
comment on table noetl.audit_answer is 'how each of them was answered, written afterwards';
comment on column noetl.audit_answer.at_ms is 'that of the call: its entry and its answer go together';
create index audit_answer_by_number on noetl.audit_answer (number);

do $$
begin
    for slot in 0..15 loop
        execute format('create table noetl.audit_%s partition of noetl.audit for values in (%s)', slot, slot);
        execute format(
            'create table noetl.audit_answer_%s partition of noetl.audit_answer for values in (%s)', slot, slot
        );
    end loop;
end $$;

insert into noetl.audit
select * from noetl.audit_before where at_ms > extract(epoch from now()) * 1000 - 34560000000;
insert into noetl.audit_answer
select number, at_ms, status, reason, made, 0
from noetl.audit_answer_before join noetl.audit using (number);
select setval('noetl.audit_number', (select coalesce(max(number), 0) + 1 from noetl.audit_before), false);
drop table noetl.audit_answer_before;
drop table noetl.audit_before;

create trigger append_only before update or delete or truncate on noetl.audit
    for each statement execute function noetl.refuse_change();
create trigger append_only before update or delete or truncate on noetl.audit_answer
    for each statement execute function noetl.refuse_change();
-- These are inherited by the partitions; their truncation is for noetl.trim_audit.
create trigger append_only_rows before update or delete on noetl.audit
    for each row execute function noetl.refuse_change();
create trigger append_only_rows before update or delete on noetl.audit_answer
    for each row execute function noetl.refuse_change();

create function noetl.trim_audit(before_ms bigint) returns void
language plpgsql security definer set search_path = noetl, pg_temp set lock_timeout = '5s' as $$
declare
    period_ms constant bigint := 2592000000;
    now_ms constant bigint := extract(epoch from now()) * 1000;
    newest_ms bigint;
begin
    for slot in 0..15 loop
        execute format('select at_ms from noetl.audit_%s order by number desc limit 1', slot) into newest_ms;
        if (newest_ms / period_ms + 1) * period_ms <= least(before_ms, now_ms - period_ms) then
            begin
                execute format('truncate noetl.audit_%s, noetl.audit_answer_%s', slot, slot);
            exception when lock_not_available then
                null; -- somebody reads it for long: next time
            end;
        end if;
    end loop;
end $$;
comment on function noetl.trim_audit is
    'drops the entries of periods that ended before this; whoever calls it, nothing younger than 30 days';
revoke execute on function noetl.trim_audit from public;
