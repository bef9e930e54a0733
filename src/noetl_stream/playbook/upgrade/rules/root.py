"""Rewrites root keys: version, metadata, executor, limits, keychain (LANGUAGE §1, §11)."""

from __future__ import annotations

import re
from typing import Any, Final

from ruamel.yaml.comments import CommentedMap, CommentedSeq

from noetl_stream.playbook.kinds.keychain import CREDENTIAL_KINDS
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.upgrade.draft import (
    Draft,
    each,
    kind_of,
    line_of,
    mapping_at,
    section,
    tasks_of,
    texts_in,
    to_ruamel,
    value_at,
)
from noetl_stream.playbook.upgrade.expressions import has_template, paths_in, rename_to, template
from noetl_stream.playbook.upgrade.rules.reads import declared_names, each_expression
from noetl_stream.template.runtime.scope import NAMESPACES

_METADATA: Final = ("name", "path", "version", "description", "tags", "labels")
_KNOWN_METADATA: Final = frozenset([*_METADATA, "annotations"])
_FACTS: Final = frozenset(["agent", "capabilities", "exposed_in_ui"])
"""Keys of `metadata` that only older dialects have."""
_EXECUTOR_FACTS: Final = ("profile", "version", "requires")
_UNDER_SPEC: Final = ("pool", "priority", "entry_step", "result", "timeout", "timeout_s", "policy")
_UNDER_POLICY: Final = ("failure", "results", "limits", "defaults")
_POLICY: Final = ("executor", "spec", "policy")
_STORED_KINDS: Final = {
    "google_id_token": "; an ID token of Google ends after an hour, so let a task fetch one, or a plugin",
    **dict.fromkeys(("bearer", "static", "api_key", "basic", "token", "google_oauth", "gcp", "hmac"), ""),
}
"""Kinds of keychain entries that are stored credentials now, with what else there is to say."""
_SCOPES: Final = {"catalog": "global", "shared": "global", "workflow": "execution", "local": "execution"}
_KEEPING: Final = ("auto_renew", "ttl", "ttl_seconds", "cache_type", "expires_in", "renew_before")
_TOKEN_CALL: Final = re.compile(r"\btoken\(\s*['\"]([A-Za-z_]\w*)['\"]\s*\)")
_TOKEN_OF_NAME: Final = re.compile(r"\btoken\(\s*(?:workload\.)?([A-Za-z_]\w*)\s*\)")
_IS_NAME: Final = re.compile(r"[A-Za-z_]\w*\Z")
_OWN_DEFAULT: Final = re.compile(r"\{\{\s*+(\w++)\s*+(?:\|\s*+default\(\s*+(['\"])([^'\"\\]*+)\2\s*+\)\s*+)?\}\}\Z")
"""The value of a workload key that repeats the given value, with a constant default or without one."""
_SETTING: Final = re.compile(r"\{\{\s*(?:workload\.)?([A-Za-z_]\w*)\s*\}\}")
_EXECUTOR_SPEC: Final = frozenset([*_UNDER_SPEC, *_UNDER_POLICY, "no_next_is_error", "lifecycle"])
_OLDER_NAMES: Final = frozenset(
    "context data env environment error event execution input item job loop output params payload response result "  # noqa: SIM905
    "secrets this vars".split()
)
"""Names with a special meaning in older dialects."""
_LIMITS: Final = {"max_payload_bytes": "max_inline_bytes"}
_CONSTANTS: Final = ("credential", "endpoint", "url", "token_endpoint", "token_url")
"""Settings of an entry that hold no secret."""
_TOKEN_URLS: Final = ("endpoint", "url", "token_endpoint")
_OAUTH_REST: Final = ("method", "headers", "cache_type", "auto_renew", "ttl_seconds", "ttl", "grant_type", "data")


def api_version(draft: Draft) -> None:
    """Rewrites an older or missing `apiVersion`, and a missing `kind`."""
    root = draft.root
    version = root.get("apiVersion")
    if "apiVersion" not in root:
        root.insert(0, "apiVersion", API_VERSION)
        draft.note_change((root, None), f"added `apiVersion: {API_VERSION}`")
    elif isinstance(version, str) and version.startswith("noetl.io/") and version != API_VERSION:
        root["apiVersion"] = API_VERSION
        draft.note_change((root, "apiVersion"), f"`apiVersion` is `{API_VERSION}`")
    if "kind" not in root:
        root.insert(1, "kind", "Playbook")
        draft.note_change((root, None), "added `kind: Playbook`")


def root_steps(draft: Draft) -> None:
    """Renames `steps`, the old name of `workflow`."""
    if "steps" in draft.root and "workflow" not in draft.root:
        draft.rename(draft.root, "steps", "workflow", note="`steps` is `workflow`")


def root_metadata(draft: Draft) -> None:
    """Moves `name`, `path`, … at the root under `metadata`; adds a path to a playbook without one."""
    root = draft.root
    loose = [key for key in _METADATA if key in root]
    if loose:
        if not isinstance(root.get("metadata"), CommentedMap):
            root.insert(list(root).index(loose[0]), "metadata", to_ruamel({}, line_of(root, loose[0]), block=True))
        for key in loose:
            draft.move(root, key, root["metadata"], note=f"`{key}` stands under `metadata`")
    metadata = root.get("metadata")
    if isinstance(metadata, CommentedMap) and "path" not in metadata and isinstance(metadata.get("name"), str):
        metadata["path"] = metadata["name"]
        draft.note_assumption((root, "metadata"), f"the path in the catalog is `{metadata['name']}`, as the name")


def root_spec(draft: Draft) -> None:
    """Renames a `spec` at the root that holds values for the steps to `workload`."""
    spec = mapping_at(draft.root, "spec")
    if not spec or "workload" in draft.root or spec.keys() & _EXECUTOR_SPEC or "spec" in declared_names(draft):
        return
    draft.note_assumption((draft.root, "spec"), "`spec` at the root has values that steps read: it is the `workload`")
    draft.rename(draft.root, "spec", "workload")
    draft.rewrite(draft.root.get("workflow"), rename_to("spec", "workload"))


def workload_defaults(draft: Draft) -> None:
    """Writes the default of `key: "{{ key | default('…') }}"` as the workload value. Given values override it."""
    workload = mapping_at(draft.root, "workload")
    for key, value in list(workload.items()) if workload is not None else []:
        found = _OWN_DEFAULT.match(value.strip()) if isinstance(value, str) else None
        if workload is not None and found is not None and found[1] == key:
            said = f"`{key}` of the workload is its default: a given value replaces it"
            draft.replace(workload, key, found[3] or "", note=said)


def given_inputs(draft: Draft) -> None:
    """Declares undefined names that the first task reads as inputs, given when the execution starts."""
    entry, steps = value_at(draft.root, "executor", "spec", "entry_step"), draft.steps()
    step = next((one for one in steps if entry in (None, one.get("step"))), None) if draft.was_older else None
    task = next(tasks_of(step.get("tool")), None) if step is not None else None
    known = declared_names(draft) | NAMESPACES | _OLDER_NAMES
    given: dict[str, None] = {}

    def read(code: str) -> str:
        is_asked = "default" in code or "defined" in code
        found = () if is_asked else (path[0] for path in paths_in(template(code)))
        given.update({str(name): None for name in found if name not in known})
        return code

    inputs = {key: it for key, it in (task or {}).items() if key not in ("name", "spec") and "{%" not in str(it)}
    each_expression(CommentedMap(inputs), read)
    if given and "workload" not in draft.root:
        draft.root.insert(list(draft.root).index("workflow"), "workload", to_ruamel({}))
    for name in given:
        draft.note_assumption((step, "tool"), f"`{name}` is read before any step has run: an input, empty if not given")
        section(draft.root, "workload")[name] = ""


def executor_facts(draft: Draft) -> None:
    """Keeps `executor.profile`, `version` and `requires`, and other kinds, as annotations."""
    executor = draft.root.get("executor")
    if not isinstance(executor, CommentedMap):
        return
    facts = [key for key in _EXECUTOR_FACTS if key in executor]
    if "kind" in executor and executor["kind"] not in ("distributed", None):
        facts.insert(0, "kind")
    for key in facts:
        message = "is kept as an annotation: every playbook runs on the servers and workers it is given to"
        draft.note_assumption((executor, key), f"`executor.{key}` {message}")
        draft.move(executor, key, section(draft.root, "metadata", "annotations", "executor"))
    if facts and not executor:
        draft.remove(draft.root, "executor")


def executor_misplaced(draft: Draft) -> None:
    """Moves keys of the executor beside `spec` or `policy` under them."""
    executor = mapping_at(draft.root, "executor")
    if executor is None:
        return
    for key in [key for key in _UNDER_SPEC if key in executor]:
        draft.move(executor, key, section(executor, "spec"), note=f"`{key}` stands under `executor.spec`")
    spec = executor.get("spec")
    for key in [key for key in _UNDER_POLICY if isinstance(spec, CommentedMap) and key in spec]:
        draft.move(spec, key, section(spec, "policy"), note=f"`{key}` stands under `executor.spec.policy`")


def default_timeout(draft: Draft) -> None:
    """Renames `policy.defaults.timeout_s`, and `timeout` there, to `timeouts`."""
    defaults = mapping_at(draft.root, *_POLICY, "defaults")
    for key in ("timeout_s", "timeout"):
        if defaults is not None and key in defaults and "timeouts" not in defaults:
            draft.rename(defaults, key, "timeouts", note=f"`defaults.{key}` is `defaults.timeouts`")


def renamed_limits(draft: Draft) -> None:
    """Renames limits that have another name."""
    limits = mapping_at(draft.root, *_POLICY, "limits")
    draft.rename_older(limits, _LIMITS, "`limits.{}` is `limits.{}`")


def keychain_mapping(draft: Draft) -> None:
    """Rewrites a `keychain` that is a mapping of name to entry."""
    keychain = draft.root.get("keychain")
    if not isinstance(keychain, CommentedMap):
        return
    draft.note_change((draft.root, "keychain"), "`keychain` is a list of entries with `name`")
    entries = CommentedSeq()
    for name, entry in keychain.items():
        if not isinstance(entry, CommentedMap):
            named = {"credential": entry} if isinstance(entry, str) else {}
            if not isinstance(entry, str | None):
                draft.note_assumption((keychain, name), f"`{name}` is a stored credential: what it held is dropped")
            entry = to_ruamel({"kind": "credential", **named}, line_of(keychain, name))
        entry.insert(0, "name", name)
        entries.append(entry)
        said = draft.comments.take(keychain, name)
        draft.comments.remark_at(entries, len(entries) - 1).before += [*said.before, *filter(None, [said.end])]
    draft.root["keychain"] = entries


def keychain_types(draft: Draft, entry: CommentedMap) -> None:
    """Renames `type` of an entry, and writes settings that are values of the workload as these, which are constants."""
    draft.rename_older(entry, {"type": "kind"}, "`{}` of an entry is `{}`")
    for key in [key for key in _CONSTANTS if has_template(entry.get(key))]:
        text = _SETTING.sub(lambda found: _given(draft, found[1]) or found[0], entry[key])
        if not has_template(text):
            said = "is written as the workload has it: settings are constants, so a given value is not read"
            draft.note_assumption((entry, key), f"`{key}` {said}")
            entry[key] = text


def _given(draft: Draft, name: str) -> str:
    """The text of a key of the workload; empty if it is none, or a template."""
    value = mapping_at(draft.root, "workload") and draft.root["workload"].get(name)
    return value if isinstance(value, str) and not has_template(value) else ""


def keychain_secret_manager(draft: Draft, entry: CommentedMap) -> None:
    """Rewrites `secret_manager` with `provider` and `map`: the secret is stored as a credential of that name."""
    extra = [key for key in ("provider", "map", "auth", "secret_name", "project_id") if key in entry]
    if entry.get("kind") not in ("secret_manager", "credential") or not extra:
        return
    keys = entry.get("map")
    parts = ", ".join(f"{key} ({value})" for key, value in keys.items()) if isinstance(keys, CommentedMap) else ""
    origin = f" from {entry['provider']}" if "provider" in entry else ""
    draft.decide(
        draft.root["keychain"],
        list(draft.root["keychain"]).index(entry),
        f"store the credential `{entry.get('name')}`{f' with the keys {parts}' if parts else ''}{origin}: "
        "`noetl-stream credential set`",
    )
    draft.replace(entry, "kind", "credential", note="a secret of another manager is a stored credential")
    for key in extra:
        draft.remove(entry, key)


def keychain_kinds(draft: Draft) -> None:
    """Rewrites kinds that hold or fetch a secret in another way as stored credentials."""
    for index, entry in enumerate(draft.keychain_entries()):
        kind = kind_of(entry)
        if kind == "credential_ref":
            said = "`credential_ref` is `credential`, whose name in the store is `credential`"
            draft.replace(entry, "kind", "credential", note=said)
            draft.rename_older(entry, {"ref": "credential"}, "`{}` of an entry is `{}`")
        if kind not in _STORED_KINDS:
            continue
        if isinstance(entry.get("ref"), str) and not has_template(entry["ref"]):
            draft.rename_older(entry, {"ref": "credential"}, "`{}` of an entry is `{}`")
        settings = [key for key in entry if key not in ("name", "kind", "scope", "credential")]
        inner = entry.get("map")
        named = [*(inner if isinstance(inner, CommentedMap) else ()), *(key for key in settings if key != "map")]
        keys = ", ".join(map(str, named)) or "its values"
        said = f"store the credential `{entry.get('name')}`, which was of kind `{kind}`, with {keys}"
        draft.decide(draft.root["keychain"], index, f"{said}: `noetl-stream credential set`{_STORED_KINDS[kind]}")
        draft.replace(entry, "kind", "credential", note=f"`{kind}` is a stored credential")
        for key in settings:
            draft.remove(entry, key, heir=(entry, "kind"))


def keychain_scopes(draft: Draft, entry: CommentedMap) -> None:
    """Rewrites scopes of stored credentials, and drops settings about keeping a token."""
    if entry.get("kind") not in CREDENTIAL_KINDS:
        return
    scope = entry.get("scope")
    if isinstance(scope, str) and scope in _SCOPES:
        draft.replace(entry, "scope", _SCOPES[scope], note=f"the scope `{scope}` is `{_SCOPES[scope]}`")
    for key in [key for key in _KEEPING if key in entry]:
        draft.drop(entry, key, "a worker asks again for what it no longer has", heir=(entry, "kind"))


def token_calls(draft: Draft) -> None:
    """Rewrites `token('name')` as the token of that entry of the keychain."""
    found: list[str] = []
    named: dict[str, str] = {}

    def write_name(match: re.Match[str]) -> str:
        name = _given(draft, match[1])
        if not _IS_NAME.match(name):
            return match[0]
        named[match[1]] = name
        return f"token('{name}')"

    def change(code: str) -> str:
        code = _TOKEN_OF_NAME.sub(write_name, code)
        found.extend(_TOKEN_CALL.findall(code))
        return _TOKEN_CALL.sub(r"keychain.\1.access_token", code)

    if not isinstance(draft.root.get("workflow"), CommentedSeq) or not each_expression(draft.root["workflow"], change):
        return
    draft.note_change((draft.root, "workflow"), "`token('…')` is `keychain.….access_token`")
    for key, name in named.items():
        message = f"`token({key})` reads the entry `{name}`, as the workload has it: a given value is not read"
        draft.note_assumption((draft.root["workload"], key), message)
    kinds = {entry.get("name"): kind_of(entry) for entry in draft.keychain_entries()}
    for name in dict.fromkeys(found):
        if kinds.get(name) in ("credential", *_STORED_KINDS):
            said = f"`token('{name}')` was the token alone: store it under `access_token` of the credential `{name}`"
            draft.note_assumption((draft.root, "workflow"), said)
        if name not in kinds:
            said = f"store the credential `{name}` with an `access_token`"
            add_credential(draft, name, f"{said}, or let kind `oauth2_client_credentials` fetch one")


def add_credential(draft: Draft, name: str, said: str, line: int = 0) -> None:
    """Adds the entry of a stored credential to the keychain, which a person has to store."""
    if not isinstance(draft.root.get("keychain"), CommentedSeq):
        draft.root.insert(list(draft.root).index("workflow"), "keychain", CommentedSeq())
    keychain = draft.root["keychain"]
    keychain.append(to_ruamel({"name": name, "kind": "credential"}, line))
    draft.decide(keychain, len(keychain) - 1, said)


def keychain_oauth2(draft: Draft, entry: CommentedMap) -> None:
    """Rewrites `oauth2` as the client credentials grant."""
    if entry.get("kind") not in ("oauth2", "oauth2_client"):
        return
    draft.replace(entry, "kind", "oauth2_client_credentials", note="`oauth2` is `oauth2_client_credentials`")
    for key in _TOKEN_URLS:
        if key in entry and "token_url" not in entry:
            draft.rename(entry, key, "token_url")
    data = entry.get("data")
    for key in ("client_id", "client_secret", "scope", "audience"):
        if isinstance(data, CommentedMap) and key in data and key not in entry:
            draft.move(data, key, entry)
    for key in [key for key in _OAUTH_REST if key in entry]:
        draft.drop(entry, key, "the worker makes the request and renews the token")
    if "scope" in entry and "scopes" not in entry and entry["scope"] not in ("execution", "global", "local"):
        scopes = entry["scope"]
        draft.rename(entry, "scope", "scopes", to_ruamel(str(scopes).split()))
    elif "scope" in entry:
        draft.drop(entry, "scope", "a token is shared by all executions of a worker")
    _use_credential(draft, entry)


def _use_credential(draft: Draft, entry: CommentedMap) -> None:
    """Rewrites a client's id and secret that are templates as a stored credential, since settings are constants."""
    secret = [key for key in ("client_id", "client_secret") if has_template(entry.get(key))]
    if "auth" in entry and "credential" not in entry and "client_secret" not in entry:
        draft.rename(entry, "auth", "credential")
    if not secret:
        return
    named = {path[1] for key in secret for path in paths_in(entry[key]) if path[0] == "keychain" and len(path) > 1}
    name: Any = named.pop() if len(named) == 1 else f"{entry.get('name')}_client"
    at = (draft.root["keychain"], list(draft.root["keychain"]).index(entry))
    given = ", ".join(f"{key} {entry[key]}" for key in secret)
    for key in secret:
        draft.remove(entry, key)
    entry["credential"] = name
    draft.decide(
        *at, f"store the credential `{name}` with `client_id` and `client_secret`: settings are constants, not {given}"
    )


def workload_templates(draft: Draft) -> None:
    """Leaves templates in the workload, which older dialects rendered, to a person."""
    workload = draft.root.get("workload")
    for key in list(workload) if isinstance(workload, CommentedMap) else []:
        if draft.was_older and any(map(has_template, texts_in(workload[key]))):
            draft.decide(workload, key, f"a workload is never rendered: write what `{key}` holds where it is read")


def other_metadata(draft: Draft) -> None:
    """Keeps facts in `metadata` that the engine does not read as annotations."""
    metadata = mapping_at(draft.root, "metadata")
    is_older = draft.was_older or (metadata is not None and bool(_FACTS & metadata.keys()))
    for key in [key for key in metadata or () if is_older and key not in _KNOWN_METADATA]:
        assert metadata is not None
        draft.move(
            metadata, key, section(metadata, "annotations"), note=f"`metadata.{key}` is an annotation: nothing reads it"
        )


def runtime_options(draft: Draft) -> None:
    """Drops options of an older runtime that have no counterpart: `no_next_is_error: false`, `tracing` at the root."""
    spec = mapping_at(draft.root, "executor", "spec")
    if spec is not None and "no_next_is_error" in spec:
        if spec["no_next_is_error"]:
            draft.decide(spec, "no_next_is_error", "where no arc fires, lead a last arc to a step that fails")
        else:
            draft.remove(
                spec, "no_next_is_error", heir=(draft.root, "executor"), note="a branch ends where no arc fires"
            )
    if isinstance(draft.root.get("tracing"), CommentedMap | bool) and not mapping_at(
        draft.root, "tracing", "attributes"
    ):
        draft.drop(draft.root, "tracing", "servers and workers say where traces go, for all playbooks")


LATER_RULES: Final = (other_metadata, workload_templates, given_inputs)
RULES: Final = (
    api_version,
    root_steps,
    root_metadata,
    root_spec,
    executor_facts,
    executor_misplaced,
    default_timeout,
    renamed_limits,
    workload_defaults,
    keychain_mapping,
    *each(Draft.keychain_entries, keychain_types, keychain_secret_manager),
    keychain_kinds,
    *each(Draft.keychain_entries, keychain_scopes, keychain_oauth2),
    token_calls,
    runtime_options,
)
