"""The root ``keychain``: the credentials a playbook uses and where each comes from (LANGUAGE §11; v10 §2.1)."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from noetl_stream.playbook.diagnostics import Problems, did_you_mean, listed
from noetl_stream.playbook.kinds.inputs import check_against
from noetl_stream.playbook.kinds.keychain import installed_kinds, plain_text_secrets
from noetl_stream.playbook.model.sections import Required, Section, entries, is_null, read_section
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.playbook.vocabulary.names import check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, kind_of

_LANGUAGE_KEYS: Final = frozenset(["name", "kind"])
_SHOWN: Final = "write { name: …, kind: credential }"


class KeychainEntry(Section):
    """The keys of every entry. Its other keys belong to the kind."""

    title = "an entry of `keychain`"
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: Annotated[str, Required(_SHOWN), Field(min_length=1)] = ""
    kind: Annotated[str, Required(_SHOWN), Field(min_length=1)] = ""


def read_keychain(node: Node | None, problems: Problems) -> MappingOf[str, KeychainPlan]:
    """The entries by name, including those with problems."""
    found: dict[str, KeychainPlan] = {}
    for item in [] if is_null(node) else entries(node, "`keychain`", problems, f"{_SHOWN} as an item of a list"):
        if not isinstance(item, Mapping):
            message = f"an entry of `keychain` must be a mapping, not {kind_of(item)}"
            problems.error("wrong_type", message, item, _SHOWN)
            continue
        entry = read_section(item.only(_LANGUAGE_KEYS), KeychainEntry, problems)
        if entry.name:
            at = item.values["name"]
            check_identifier(entry.name, "a keychain entry's name", at, problems)
            if entry.name in found:
                first = found[entry.name].line
                message = f"duplicate keychain entry `{entry.name}`, first on line {first}"
                problems.error("duplicate_name", message, at, "rename one: names must be unique in the keychain")
        settings = item.without(_LANGUAGE_KEYS)
        if entry.kind:
            _check_settings(settings, entry, item.values["kind"], problems)
        found.setdefault(entry.name, KeychainPlan(entry.name, entry.kind, settings.plain(), item.mark.line))
    return found


def _check_settings(settings: Mapping, entry: KeychainEntry, at: Node, problems: Problems) -> None:
    installed = installed_kinds()
    model = installed.settings.get(entry.kind)
    if model is None:
        kinds = installed.settings
        hint = did_you_mean(entry.kind, kinds) or f"installed kinds: {listed(sorted(kinds))}; plugins can add more"
        message = installed.unusable.get(entry.kind, f"unknown keychain kind `{entry.kind}`")
        problems.error("unknown_kind", message, at, hint)
        return
    check_against(settings, model, f"the settings of kind `{entry.kind}`", problems, at=at)
    for name in plain_text_secrets(settings.plain()):
        if isinstance(settings.values[name], Scalar):
            message = f"`{name}` is in plain text and will be stored with the playbook"
            hint = "store it as a credential and name it with `credential`"
            problems.warn("plain_secret", message, settings.keys[name], hint)
