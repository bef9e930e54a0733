-- A folder of playbooks is a range of the index by path: in the order of bytes, whatever the database's language.

alter table noetl.execution alter column path type text collate "C";
