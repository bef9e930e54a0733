import type { Act } from '../../acts'
import { segment } from '../../api/client'

/** Changes of a trigger: what is sent, and the same as a line of the shell. */

const one = (path: string): string => `/triggers/${segment(path)}`

const asks = (path: string, verb: 'pause' | 'resume'): Act => ({
  method: 'POST',
  path: `${one(path)}/${verb}`,
  cli: ['noetl-stream', 'trigger', verb, path],
})

export const pauses = (path: string): Act => asks(path, 'pause')
export const resumes = (path: string): Act => asks(path, 'resume')

export const deletes = (path: string): Act => ({
  method: 'DELETE',
  path: one(path),
  cli: ['noetl-stream', 'trigger', 'delete', path],
})

export const resends = (path: string, number: number): Act => ({
  method: 'POST',
  path: `${one(path)}/events/${number}/resend`,
  cli: ['noetl-stream', 'trigger', 'resend', path, String(number)],
})
