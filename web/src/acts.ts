import { segment } from './api/client'
import { typed } from './typed'

/** A change of an execution: what is sent, and the same as a line of the shell. */
export interface Act {
  method: 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  path: string
  body?: unknown
  media?: string
  /** The file in which curl has the body, if it holds a secret: then it is written nowhere. */
  file?: string
  /** Null if the command line cannot say it: a key has a dot in it, which means "inside" there. */
  cli: string[] | null
  /** What the command reads. */
  stdin?: string
}

export type Verb = 'pause' | 'resume' | 'cancel' | 'retry' | 'retry-now' | 'compensate'
type Mapping = Record<string, unknown>

const one = (id: string): string => `/executions/${segment(id)}`
const verb = (name: string, id: string, ...more: string[]): string[] => ['noetl-stream', 'execution', name, id, ...more]

export const asks = (id: string, name: Verb): Act => ({ method: 'POST', path: `${one(id)}/${name}`, cli: verb(name, id) })

/** Ends an execution at once: nothing more is undone. */
export const cancelsNow = (id: string): Act => ({ ...asks(id, 'cancel'), body: { now: true }, cli: verb('cancel', id, '--now') })

export const signals = (id: string, name: string, payload: unknown): Act => ({
  method: 'POST',
  path: `${one(id)}/signals/${segment(name)}`,
  body: { payload },
  cli: verb('signal', id, ...(payload === null ? [] : ['--payload', typed(payload)]), ...(name.startsWith('-') ? ['--'] : []), name),
})

export const patches = (id: string, keys: Mapping): Act => {
  const made = { method: 'PATCH', path: `${one(id)}/ctx`, body: keys } as const
  const sets = pairs('--set', keys)
  if (sets !== null) return { ...made, cli: verb('patch', id, ...sets) }
  return { ...made, cli: verb('patch', id, '--file', STDIN), stdin: JSON.stringify(keys) }
}

/** Sets a value inside a key, and leaves what stands beside it. */
export const patchesInside = (id: string, path: readonly string[], value: unknown): Act => {
  const made = {
    method: 'PATCH',
    path: `${one(id)}/ctx`,
    media: 'application/merge-patch+json',
    body: path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value),
  } as const
  if (path.every((key) => key !== '' && !/[.=]/.test(key))) {
    return { ...made, cli: verb('patch', id, '--merge', '--set', `${path.join('.')}=${typed(value)}`) }
  }
  return { ...made, cli: verb('patch', id, '--merge', '--file', STDIN), stdin: JSON.stringify(made.body) }
}

export const injects = (id: string, step: string, args: Mapping): Act => {
  const sets = pairs('--set', args)
  return {
    method: 'POST',
    path: `${one(id)}/tokens`,
    body: { step, args },
    cli: sets && verb('token', id, step, ...sets),
  }
}

/** What a rerun begins with: of which run of the step, and what is changed. `args` null keeps those of the run. */
export interface Rerun {
  step: string
  run: string | null
  ctx: Mapping
  args: Mapping | null
}

export const reruns = (id: string, { step, run, ctx, args }: Rerun): Act => {
  const isOdd = args !== null && (Object.keys(args).length === 0 || pairs('--set', args) === null)
  const sets = pairs('--ctx', ctx)
  const given = isOdd ? ['--args', STDIN] : (pairs('--set', args ?? {}) ?? [])
  return {
    method: 'POST',
    path: `${one(id)}/rerun`,
    body: { step, ...(run && { step_run_id: run }), ...(Object.keys(ctx).length > 0 && { ctx }), ...(args && { args }) },
    cli: sets && verb('rerun', id, step, ...(run ? ['--step-run', run] : []), ...sets, ...given),
    ...(isOdd && { stdin: JSON.stringify(args) }),
  }
}

/** Starts a version of a playbook with what differs from its `workload`, at its priority or another. */
export const starts = (path: string, version: string, workload: Mapping, priority: number | null = null): Act => {
  const at = priority === null ? {} : { priority }
  const made = { method: 'POST', path: '/executions', body: { path, version, workload, ...at } } as const
  const command = ['noetl-stream', 'execution', 'start', `${path}@${version}`]
  if (priority !== null) command.push('--priority', String(priority))
  const sets = pairs('--set', workload)
  if (sets !== null) return { ...made, cli: [...command, ...sets] }
  return { ...made, cli: [...command, '--workload', STDIN], stdin: JSON.stringify(workload) }
}

const STDIN = '/dev/stdin'

/** Options that set keys; null if one of the keys would mean another there. */
function pairs(option: string, keys: Mapping): string[] | null {
  if (Object.keys(keys).some((key) => key === '' || /[.=]/.test(key))) return null
  return Object.entries(keys).flatMap(([key, value]) => [option, `${key}=${typed(value)}`])
}

/** The command line that does the same; null if there is none. */
export function cliLine({ cli, stdin }: Act, reason: string): string | null {
  if (cli === null) return null
  const end = cli.indexOf('--')
  const why = reason ? ['--reason', reason] : []
  const words = end < 0 ? [...cli, ...why] : [...cli.slice(0, end), ...why, ...cli.slice(end)]
  const line = shellLine(words)
  return stdin === undefined ? line : `printf %s ${quoted(stdin)} | ${line}`
}

/** The same with curl; the token is one that the reader has. */
export function curlLine(act: Act, reason: string, origin: string): string {
  const words = ['curl', '-X', act.method, `${origin}/api/v1${act.path}`]
  if (reason) words.push('-H', `X-Reason: ${encodeURIComponent(reason)}`)
  if (act.body !== undefined) {
    const sent = act.file === undefined ? ['-d', JSON.stringify(act.body)] : ['--data-binary', `@${act.file}`]
    words.push('-H', `Content-Type: ${act.media ?? 'application/json'}`, ...sent)
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
