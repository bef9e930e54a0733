import { act, type Act } from '../../acts'
import type { ApiTokenRequest } from 'noetl-stream-client'

/** Changes of the system. */

export const requeues = (letter_id: string): Act =>
  act('requeueDeadLetter', { letter_id }, ['noetl-stream', 'dead-letter', 'requeue', letter_id])

export const discards = (letter_id: string): Act =>
  act('discardDeadLetter', { letter_id }, ['noetl-stream', 'dead-letter', 'discard', letter_id])

export const deletesCredential = (name: string): Act =>
  act('deleteCredential', { name }, ['noetl-stream', 'credential', 'delete', name])

export const rotatesCredentials = (): Act => act('rotateCredentials', {}, ['noetl-stream', 'credential', 'rotate'])

export const revokes = (token_id: string): Act => act('revokeToken', { token_id }, ['noetl-stream', 'token', 'revoke', token_id])

export interface NewToken {
  name: string
  role: ApiTokenRequest['role']
  paths: string[]
  /** 0: until it is revoked. */
  days: number
}

const DAY_MS = 86_400_000

export function createsToken({ name, role, paths, days }: NewToken, nowMs: number): Act {
  const expires = days > 0 ? new Date(nowMs + days * DAY_MS) : 'never'
  return act('createToken', { name, role, paths, expires }, [
    ...['noetl-stream', 'token', 'create', name, '--role', role],
    ...(paths.length > 0 ? ['--paths', paths.join(',')] : []),
    ...['--expires', days > 0 ? `${days}d` : 'never'],
  ])
}
