"""The root ``keychain``: which credentials a playbook names, and how each is had (LANGUAGE §11; v10 §2.1)."""

from __future__ import annotations

from collections.abc import Mapping as MappingOf
from typing import Annotated, Final

from pydantic import ConfigDict, Field

from noetl_stream.playbook.diagnostics import Problems, did_you_mean, listed
from noetl_stream.playbook.kinds.inputs import check_against
from noetl_stream.playbook.kinds.keychain import installed_kinds, written_secrets
from noetl_stream.playbook.model.sections import Required, Section, entries, is_null, read_section
from noetl_stream.playbook.plan import KeychainPlan
from noetl_stream.playbook.vocabulary.names import check_identifier
from noetl_stream.playbook.yaml.nodes import Mapping, Node, Scalar, kind_of

_LANGUAGE_KEYS: Final = frozenset(["name", "kind"])
_SHOWN: Final = "write { name: …, kind: credential }"


class KeychainEntry(Section):
    """What every entry has; its other keys are the kind's."""

    title = "an entry of `keychain`"
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: Annotated[str, Required(_SHOWN), Field(min_length=1)] = ""
    kind: Annotated[str, Required(_SHOWN), Field(min_length=1)] = ""


def read_keychain(node: Node | None, problems: Problems) -> MappingOf[str, KeychainPlan]:
    """The entries by name; those with problems are among them."""
    found: dict[str, KeychainPlan] = {}
    for item in [] if is_null(node) else entries(node, "`keychain`", problems, f"{_SHOWN} as an item of a list"):
        if not isinstance(item, Mapping):
            message = f"an entry of `keychain` must be a mapping, this is {kind_of(item)}"
            problems.error("wrong_type", message, item, _SHOWN)
            continue
        entry = read_section(item.only(_LANGUAGE_KEYS), KeychainEntry, problems)
        if entry.name:
            at = item.values["name"]
            check_identifier(entry.name, "a keychain entry's name", at, problems)
            if entry.name in found:
                first = found[entry.name].line
                message = f"a second keychain entry called `{entry.name}`, the first is in line {first}"
                problems.error("duplicate_name", message, at, "names are unique in the keychain")
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
        hint = did_you_mean(entry.kind, kinds) or f"kinds: {listed(sorted(kinds))}; plugins can add others"
        message = installed.unusable.get(entry.kind, f"there is no keychain kind `{entry.kind}`")
        problems.error("unknown_kind", message, at, hint)
        return
    check_against(settings, model, f"the settings of kind `{entry.kind}`", problems, at=at)
    for name in written_secrets(settings.plain()):
        if isinstance(settings.values[name], Scalar):
            message = f"`{name}` stands in plain text in the playbook, and is stored with it"
            hint = "keep it as a credential, and name that with `credential`"
            problems.warn("plain_secret", message, settings.keys[name], hint)
