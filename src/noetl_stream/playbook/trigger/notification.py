"""The notification that a trigger sends instead of starting a playbook: it compiles to a playbook of one step, which a
worker runs like any other (LANGUAGE §15 *Trigger*).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from noetl_stream.model.json.codec import encode
from noetl_stream.model.rights import MAX_PATH_CHARS
from noetl_stream.playbook.diagnostics import Problems
from noetl_stream.playbook.model.catalog_document import TEXT, Shaped, schema_of
from noetl_stream.playbook.model.document import API_VERSION
from noetl_stream.playbook.model.sections import Part, Required, Schema, Section, described, is_null, or_null
from noetl_stream.playbook.yaml.nodes import Mapping as MappingNode
from noetl_stream.playbook.yaml.nodes import Node, holds_template

SUFFIX: Final = "/notify"
"""The suffix of that playbook's path, after the path of the trigger."""

MAX_COMMAND: Final = 50
ATTEMPTS: Final = 6

_CREDENTIAL: Final[Schema] = {**TEXT, "maxLength": 128}
_HINT: Final = "write notify: { webhook: { url: … } }, { nats: { subject: …, credential: … } } or { command: [ … ] }"
_SIGN: Final = """
import hashlib, hmac, json, time

key = secret if isinstance(secret, str) else secret.get("secret") or secret["secrets"][0]
body = json.dumps(message, ensure_ascii=False, separators=(",", ":"))
at = str(int(time.time()))
signature = hmac.new(key.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
result = {"body": body, "at": at, "signature": f"sha256={signature}"}
"""
_RETRIED: Final = {
    "policy": {
        "rules": [
            {
                "when": "{{ outcome.status == 'error' and outcome.error.retryable }}",
                "then": {"do": "retry", "attempts": ATTEMPTS, "backoff": "exponential", "delay": 2},
            },
            {"when": "{{ outcome.status == 'error' }}", "then": {"do": "fail"}},
        ]
    }
}
"""The policy of retries, for about a minute: the signed time is that of the first attempt."""


class NotifyWebhook(Section):
    title = "`webhook`"
    example = "write webhook: { url: https://example.org/hook, credential: … }"

    url: Annotated[str, Required("url: https://example.org/hook")] = described(
        "The address.", {**TEXT, "pattern": "^https?://"}, default=""
    )
    credential: str | None = described("The stored credential that signs the message.", or_null(_CREDENTIAL))
    auth: str | None = described("The stored credential that the request shows.", or_null(_CREDENTIAL))


class NotifyNats(Section):
    title = "`nats`"
    example = "write nats: { subject: executions.failed, credential: … }"

    subject: Annotated[str, Required("subject: executions.failed")] = described("Its subject.", TEXT, default="")
    credential: Annotated[str, Required("credential: …, that of the NATS to publish to")] = described(
        "The stored credential of the NATS.", _CREDENTIAL, default=""
    )
    jetstream: bool = described("Whether a stream has to store it.", default=False)


class NotifySection(Section):
    title = "`notify`"
    example = _HINT
    schema_rules: ClassVar[Schema] = {"oneOf": [{"required": [way]} for way in ("webhook", "nats", "command")]}

    webhook: Annotated[Part, Shaped(lambda: schema_of(NotifyWebhook))] = described("A request to an address.")
    nats: Annotated[Part, Shaped(lambda: schema_of(NotifyNats))] = described("A message on NATS.")
    command: list[str] | None = described(
        "A program that reads the message from its standard input.",
        {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MAX_COMMAND},
    )


class Notification(msgspec.Struct, frozen=True):
    """The tasks that send ``workload.message``, as in a playbook, and the credential that signs it, if any."""

    tasks: list[dict[str, Any]]
    signed_by: str | None = None


def read_notification(node: Node | None, problems: Problems) -> Notification | None:
    """Reads a notification: its content and destination; ``None``, after reporting, if it has errors."""
    node, read = NotifySection.read_whole(node, problems)
    if not isinstance(node, MappingNode):
        return None
    if holds_template(node):
        message = "`notify` is not rendered: its message is the `workload` of the trigger"
        problems.error("template_not_rendered", message, node, "write values")
    given = [name for name in ("webhook", "nats", "command") if not is_null(node.get(name))]
    for name in given[1:]:
        message = f"`{name}` beside `{given[0]}`: a trigger notifies in one way"
        problems.error("conflicting_keys", message, node.keys[name], "remove one, or write two triggers")
    if not given:
        problems.error("missing_key", "`notify` needs `webhook`, `nats` or `command`", node, _HINT)
        return None
    found: Notification = _READERS[given[0]](getattr(read, given[0]), node, problems)
    return found


def notify_path(path: str, at: Node, problems: Problems) -> str:
    """The path of the playbook that sends the notification of the trigger at ``path``."""
    if len(path) > MAX_PATH_CHARS - len(SUFFIX):
        problems.error("invalid_value", f"`metadata.path` is too long for `notify`, which adds `{SUFFIX}`", at)
    return path + SUFFIX


def notify_playbook(path: str, name: str, sent: Notification) -> str:
    """The playbook of a notification, as text: JSON, which is YAML."""
    keychain = [{"name": "signing", "kind": "credential", "credential": sent.signed_by}] if sent.signed_by else []
    document = {
        "apiVersion": API_VERSION,
        "kind": "Playbook",
        "metadata": {
            "name": name,
            "path": path,
            "description": f"What trigger {path.removesuffix(SUFFIX)} sends.",
        },
        **({"keychain": keychain} if keychain else {}),
        "workload": {"message": None},
        "workflow": [{"step": "notify", "tool": sent.tasks}],
    }
    return encode(document).decode()


def _webhook(node: Node, _at: MappingNode, problems: Problems) -> Notification:
    node, read = NotifyWebhook.read_whole(node, problems)
    if read.url and urlsplit(read.url).scheme not in ("http", "https") and isinstance(node, MappingNode):
        problems.error("invalid_value", "`url` must begin with https:// or http://", node.values["url"])
    post: dict[str, Any] = {"name": "send", "kind": "http", "method": "POST", "url": read.url, "spec": _RETRIED}
    post |= {"auth": read.auth} if read.auth else {}
    headers = {"X-Noetl-Delivery": "{{ execution_id }}"}
    if read.credential is None:
        return Notification([{**post, "headers": headers, "json": "{{ workload.message }}"}])
    secret = {"message": "{{ workload.message }}", "secret": "{{ keychain.signing }}"}
    headers |= {
        "Content-Type": "application/json",
        "X-Noetl-Timestamp": "{{ signed.at }}",
        "X-Noetl-Signature": "{{ signed.signature }}",
    }
    sign = {"name": "signed", "kind": "python", "args": secret, "code": _SIGN}
    return Notification([sign, {**post, "headers": headers, "body": "{{ signed.body }}"}], read.credential)


def _nats(node: Node, _at: MappingNode, problems: Problems) -> Notification:
    read = NotifyNats.from_node(NotifyNats.recover(node, problems), problems)
    headers = {"X-Noetl-Delivery": "{{ execution_id }}"}
    publish = {"name": "send", "kind": "nats", "action": "publish", "auth": read.credential, "subject": read.subject}
    return Notification(
        [
            {
                **publish,
                "jetstream": read.jetstream,
                "headers": headers,
                "payload": "{{ workload.message }}",
                "spec": _RETRIED,
            }
        ]
    )


def _command(command: list[str], at: MappingNode, problems: Problems) -> Notification:
    if not command or len(command) > MAX_COMMAND:
        text = f"`command` is a program and up to {MAX_COMMAND - 1} arguments"
        problems.error("invalid_value", text, at.values["command"], "write command: [ notify-send, failed ]")
    message = "{{ workload.message | tojson }}"
    return Notification([{"name": "send", "kind": "shell", "command": command, "stdin": message, "spec": _RETRIED}])


_READERS: Final[Mapping[str, Any]] = {"webhook": _webhook, "nats": _nats, "command": _command}
