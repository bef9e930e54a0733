import { segment } from './api/client'

/** A change of an execution: what is sent, and the same as a line of the shell. */
export interface Act {
  method: 'POST' | 'PATCH'
  path: string
  body?: unknown
  media?: string
  cli: string[]
  /** What the command reads. */
  stdin?: string
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

const SETTABLE = /^[A-Za-z_][\w-]*$/

/** Starts a version of a playbook with what differs from its `workload`. */
export function starts(path: string, version: string, workload: Record<string, unknown>): Act {
  const act: Act = {
    method: 'POST',
    path: '/executions',
    body: { path, version, workload },
    cli: ['noetl-stream', 'execution', 'start', `${path}@${version}`],
  }
  if (Object.keys(workload).every((key) => SETTABLE.test(key))) {
    for (const [key, value] of Object.entries(workload)) act.cli.push('--set', `${key}=${JSON.stringify(value)}`)
    return act
  }
  // A key with a dot would be read as one within another.
  return { ...act, cli: [...act.cli, '--workload', '/dev/stdin'], stdin: JSON.stringify(workload) }
}

/** The command line that does the same. */
export function cliLine(act: Act, reason: string): string {
  const line = shellLine([...act.cli, ...(reason ? ['--reason', reason] : [])])
  return act.stdin === undefined ? line : `echo ${quoted(act.stdin)} | ${line}`
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

/** A command as a line of a shell. */
export const shellLine = (words: string[]): string => words.map(quoted).join(' ')

/** Sends a file with curl. */
export function curlFile(path: string, file: string, media: string, origin: string): string {
  const words = ['curl', '-X', 'POST', `${origin}/api/v1${path}`, '-H', `Content-Type: ${media}`, '--data-binary', `@${file}`]
  return `${shellLine(words)} -H "Authorization: Bearer $TOKEN"`
}

/** A word as a POSIX shell reads it. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
