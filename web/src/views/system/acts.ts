import type { Act } from '../../acts'
import { segment } from '../../api/client'
import type { ApiTokenRequest } from '../../api/types'

/** Changes of the system: what is sent, and the same as a line of the shell. */

const letter = (id: string): string => `/dead-letters/${segment(id)}`

export const requeues = (id: string): Act => ({
  method: 'POST',
  path: `${letter(id)}/requeue`,
  cli: ['noetl-stream', 'dead-letter', 'requeue', id],
})

export const discards = (id: string): Act => ({
  method: 'DELETE',
  path: letter(id),
  cli: ['noetl-stream', 'dead-letter', 'discard', id],
})

export const deletesCredential = (name: string): Act => ({
  method: 'DELETE',
  path: `/credentials/${segment(name)}`,
  cli: ['noetl-stream', 'credential', 'delete', name],
})

export const rotatesCredentials = (): Act => ({
  method: 'POST',
  path: '/credentials/rotate',
  cli: ['noetl-stream', 'credential', 'rotate'],
})

export const revokes = (id: string): Act => ({
  method: 'DELETE',
  path: `/tokens/${segment(id)}`,
  cli: ['noetl-stream', 'token', 'revoke', id],
})

export interface NewToken {
  name: string
  role: ApiTokenRequest['role']
  paths: string[]
  /** 0: until it is revoked. */
  days: number
}

const DAY_MS = 86_400_000

export function createsToken({ name, role, paths, days }: NewToken, nowMs: number): Act {
  const body: ApiTokenRequest = { name, role, paths }
  body.expires = days > 0 ? new Date(nowMs + days * DAY_MS).toISOString() : 'never'
  return {
    method: 'POST',
    path: '/tokens',
    body,
    cli: [
      ...['noetl-stream', 'token', 'create', name, '--role', role],
      ...(paths.length > 0 ? ['--paths', paths.join(',')] : []),
      ...['--expires', days > 0 ? `${days}d` : 'never'],
    ],
  }
}
