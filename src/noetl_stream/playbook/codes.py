"""The codes of diagnostics, of every kind of document (LANGUAGE §3 *Diagnostics*)."""

from __future__ import annotations

from typing import Literal

from noetl_stream.template.failures import FindingCode

Code = Literal[
    FindingCode,
    "yaml_alias", "yaml_documents", "yaml_duplicate_key", "yaml_empty", "yaml_encoding", "yaml_key", "yaml_limit",
    "yaml_merge_key", "yaml_number", "yaml_syntax", "yaml_tab", "yaml_tag", "yaml_version", "yaml_leading_zero",
    "missing_key", "unknown_key", "misplaced_key", "lost_indentation", "wrong_type", "invalid_value",
    "conflicting_keys", "reserved", "no_effect", "limit_exceeded", "too_many_problems",
    "code_syntax", "invalid_default", "invalid_name", "reserved_name", "duplicate_name", "unknown_step",
    "unknown_task", "unknown_kind", "unknown_entry", "unknown_name", "workbook_entry",
    "legacy_syntax", "root_vars", "step_when", "label_keyed_task", "next_shape", "policy_shape",
    "control_outside_policy", "else_not_last", "else_twice", "else_without_then",
    "read_only", "set_ctx_in_parallel_loop", "set_vars_in_parallel_loop", "impossible_comparison", "foreign_helper",
    "keychain_whole", "template_not_rendered", "invalid_schema", "unbounded_schema", "missing_credential",
    "unregistered_schema", "never_set", "shadowed_name", "competing_writes", "admission_never_opens",
    "endless_cycle", "join_never_fires", "not_joined", "tokens_pile_up", "not_explored", "unmatched_error",
    "null_on_error", "failure_not_routed", "absent_result", "not_idempotent", "unreachable_step", "unused_entry",
    "template_in_sql", "template_in_shell", "plain_secret",
    "kind_off", "unregistered_playbook", "unknown_result_key", "invalid_cron", "never_due", "unknown_zone",
    "uneven_step", "constant_key",
    "cannot_render", "trigger_circle", "file_unreadable", "not_a_playbook", "not_stubbed", "not_real",
    "not_granted", "no_pool",
]  # fmt: skip
"""The code of a diagnostic, stable across versions. The page about diagnostics explains each."""
