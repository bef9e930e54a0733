"""Verifies deliveries to webhooks: gateways see no secret and ask a server (LANGUAGE §15 *Trigger*).

An unknown webhook and a wrong signature get the same answer after the same work, so that strangers cannot tell them
apart.
"""

from __future__ import annotations

import logging
from typing import Final

from noetl_stream.engine.aggregates.triggers import TriggerState
from noetl_stream.errors import NoetlError
from noetl_stream.model.aggregates import TRIGGER, Verification, aggregate_id
from noetl_stream.model.ids import derive
from noetl_stream.model.json import codec
from noetl_stream.model.messages import WebhookAnswer
from noetl_stream.playbook.trigger.matching import describe_delivery
from noetl_stream.ports.clock import Clock
from noetl_stream.ports.stores.aggregates import AggregateStore
from noetl_stream.server.answers.credential_values import SecretsResponder
from noetl_stream.settings.grants import GrantsFile
from noetl_stream.trigger.signatures import Refused, WebhookDelivery, challenge_in, secret_headers, secrets_in, verify

log = logging.getLogger(__name__)

UNKNOWN_WEBHOOK: Final = Verification(form="hmac", credential="no-such-webhook", header="x-signature")
"""The verification of a delivery to an unknown webhook, which always fails."""


class Webhooks:
    """Verifies deliveries to webhooks. Without ``secrets``, only those that need none are accepted; with ``grants``,
    only those whose trigger may use its credential.
    """

    def __init__(
        self, store: AggregateStore, secrets: SecretsResponder | None, clock: Clock, grants: GrantsFile | None = None
    ) -> None:
        self._store = store
        self._secrets = secrets
        self._clock = clock
        self._grants = grants

    async def answer(self, names: list[str], body: bytes) -> WebhookAnswer:
        asked = codec.decode_webhook_question(body)
        delivery = WebhookDelivery(method=asked.method, headers=asked.headers, body=asked.body, query=asked.query)
        state = await self._trigger(asked.path)
        how = None if state is None else state.terms.webhook
        secrets = await self._secrets_of(how or UNKNOWN_WEBHOOK)
        found = verify(delivery, how or UNKNOWN_WEBHOOK, secrets if how is not None else ("",), self._clock.now_ms())
        if state is None or how is None:
            return WebhookAnswer()
        reason = found.reason if isinstance(found, Refused) else self._refusal(state.path, how)
        if isinstance(found, Refused) or reason:
            log.warning("a delivery to the webhook of trigger %s is refused: %s", state.path, reason)
            return WebhookAnswer()
        identity = derive(state.created_ms, found.identity) if found.identity else ""
        return WebhookAnswer(
            True, describe_delivery(_without_secrets(delivery, how)), identity, challenge_in(delivery, how)
        )

    async def _trigger(self, path: str) -> TriggerState | None:
        id = aggregate_id("starter", path)
        row = (await self._store.aggregates({id})).get(id)
        return codec.decode_as(TriggerState, row.state) if row is not None and row.kind == TRIGGER else None

    def _refusal(self, path: str, how: Verification) -> str:
        grants = self._grants.current() if self._grants is not None else None
        if grants is None or not how.credential or grants.allows(path, "credentials", how.credential):
            return ""
        return f"the operator's grants do not give it the credential `{how.credential}`"

    async def _secrets_of(self, how: Verification) -> tuple[str, ...]:
        if not how.credential or self._secrets is None:
            return ()
        try:
            found = secrets_in(await self._secrets.value(how.credential))
        except NoetlError as error:
            log.error("the secret of a webhook, credential %s, cannot be read: %s", how.credential, error)
            raise
        if not found and how is not UNKNOWN_WEBHOOK:
            log.error("credential %s of a webhook is not stored, or holds no secret", how.credential)
        return found


def _without_secrets(delivery: WebhookDelivery, how: Verification) -> WebhookDelivery:
    left_out = secret_headers(how)
    headers = {name: text for name, text in delivery.headers.items() if name not in left_out}
    return WebhookDelivery(method=delivery.method, headers=headers, body=delivery.body, query=delivery.query)
