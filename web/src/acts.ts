import { segment } from './api/client'

/** A change of an execution: what is sent, and the same as a line of the shell. */
export interface Act {
  method: 'POST' | 'PATCH' | 'DELETE'
  path: string
  body?: unknown
  media?: string
  cli: string[]
}

export type Verb = 'pause' | 'resume' | 'cancel' | 'retry'

const one = (id: string): string => `/executions/${segment(id)}`

export const asks = (id: string, verb: Verb): Act => ({
  method: 'POST',
  path: `${one(id)}/${verb}`,
  cli: ['noetl-stream', 'execution', verb, id],
})

export const signals = (id: string, name: string, payload: unknown): Act => ({
  method: 'POST',
  path: `${one(id)}/signals/${segment(name)}`,
  body: { payload },
  cli: ['noetl-stream', 'execution', 'signal', id, name, ...(payload === null ? [] : ['--payload', JSON.stringify(payload)])],
})

export const patches = (id: string, keys: Record<string, unknown>): Act => ({
  method: 'PATCH',
  path: `${one(id)}/ctx`,
  body: keys,
  cli: [
    ...['noetl-stream', 'execution', 'patch', id],
    ...Object.entries(keys).flatMap(([key, value]) => ['--set', `${key}=${JSON.stringify(value)}`]),
  ],
})

export const reruns = (id: string, step: string): Act => ({
  method: 'POST',
  path: `${one(id)}/rerun`,
  body: { step },
  cli: ['noetl-stream', 'execution', 'rerun', id, step],
})

/** The command line that does the same. */
export function cliLine(act: Act, reason: string): string {
  return [...act.cli, ...(reason ? ['--reason', reason] : [])].map(quoted).join(' ')
}

/** The same with curl; the token is one that the reader has. */
export function curlLine(act: Act, reason: string, origin: string): string {
  const words = ['curl', '-X', act.method, `${origin}/api/v1${act.path}`]
  if (reason) words.push('-H', `X-Reason: ${encodeURIComponent(reason)}`)
  if (act.body !== undefined) {
    words.push('-H', `Content-Type: ${act.media ?? 'application/json'}`, '-d', JSON.stringify(act.body))
  }
  return `${words.map(quoted).join(' ')} -H "Authorization: Bearer $TOKEN"`
}

/** A word as a POSIX shell reads it. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
