import { requestOf, type Verbs } from 'noetl-stream-client'
import { typed } from './typed'

/** A change: a verb of the API with its arguments, and the same as a line of the shell. */
export interface Act {
  verb: keyof Verbs
  given: object
  /** Null if the command line cannot say it: a key has a dot in it, which means "inside" there. */
  cli: string[] | null
  /** What the command reads. */
  stdin?: string
  /** The file in which curl has the body, if it holds a secret: then it is written nowhere. */
  file?: string
}

/** The act of a verb with these arguments. */
export const act = <Verb extends keyof Verbs>(
  verb: Verb,
  given: NonNullable<Parameters<Verbs[Verb]>[0]>,
  cli: string[] | null,
  more: Pick<Act, 'stdin' | 'file'> = {},
): Act => ({ verb, given, cli, ...more })

const ASKED = {
  pause: 'pauseExecution',
  resume: 'resumeExecution',
  cancel: 'cancelExecution',
  retry: 'retryExecution',
  'retry-now': 'retryNow',
  compensate: 'compensateExecution',
} as const
export type Verb = keyof typeof ASKED
type Mapping = Record<string, unknown>

const line = (name: string, id: string, ...more: string[]): string[] => ['noetl-stream', 'execution', name, id, ...more]

export const asks = (id: string, name: Verb): Act => act(ASKED[name], { execution_id: id }, line(name, id))

/** Ends an execution at once: nothing more is undone. */
export const cancelsNow = (id: string): Act => act('cancelExecution', { execution_id: id, now: true }, line('cancel', id, '--now'))

export const signals = (id: string, name: string, payload: unknown): Act => {
  const said = payload === null ? [] : ['--payload', typed(payload)]
  return act('sendSignal', { execution_id: id, name, payload }, line('signal', id, ...said, ...(name.startsWith('-') ? ['--'] : []), name))
}

export const patches = (id: string, changes: Mapping): Act => {
  const [given, sets] = [{ execution_id: id, changes }, pairs('--set', changes)]
  if (sets !== null) return act('patchCtx', given, line('patch', id, ...sets))
  return act('patchCtx', given, line('patch', id, '--file', STDIN), { stdin: JSON.stringify(changes) })
}

/** Sets a value inside a key, and leaves what stands beside it. */
export const patchesInside = (id: string, path: readonly string[], value: unknown): Act => {
  const changes = path.reduceRight<unknown>((inner, key) => ({ [key]: inner }), value) as Mapping
  const given = { execution_id: id, changes, media: 'application/merge-patch+json' } as const
  if (path.every((key) => key !== '' && !/[.=]/.test(key))) {
    return act('patchCtx', given, line('patch', id, '--merge', '--set', `${path.join('.')}=${typed(value)}`))
  }
  return act('patchCtx', given, line('patch', id, '--merge', '--file', STDIN), { stdin: JSON.stringify(changes) })
}

export const injects = (id: string, step: string, args: Mapping): Act => {
  const sets = pairs('--set', args)
  return act('injectToken', { execution_id: id, step, args }, sets && line('token', id, step, ...sets))
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
  return act(
    'rerunExecution',
    { execution_id: id, step, step_run_id: run, args, ...(Object.keys(ctx).length > 0 && { ctx }) },
    sets && line('rerun', id, step, ...(run ? ['--step-run', run] : []), ...sets, ...given),
    isOdd ? { stdin: JSON.stringify(args) } : {},
  )
}

/** Starts a version of a playbook with what differs from its `workload`, at its priority or another. */
export const starts = (path: string, version: string, workload: Mapping, priority: number | null = null): Act => {
  const given = { path, version, workload, priority }
  const command = ['noetl-stream', 'execution', 'start', `${path}@${version}`]
  if (priority !== null) command.push('--priority', String(priority))
  const sets = pairs('--set', workload)
  if (sets !== null) return act('startExecution', given, [...command, ...sets])
  return act('startExecution', given, [...command, '--workload', STDIN], { stdin: JSON.stringify(workload) })
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
  const command = shellLine(words)
  return stdin === undefined ? command : `printf %s ${quoted(stdin)} | ${command}`
}

/** The same with curl; the token is one that the reader has. */
export function curlLine({ verb, given, file }: Act, reason: string, origin: string): string {
  const { method, path, headers, body } = requestOf(verb, { ...given, reason } as Parameters<Verbs[typeof verb]>[0])
  const sent = file === undefined ? body && ['-d', body] : ['--data-binary', `@${file}`]
  const said = Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`])
  return `${shellLine(['curl', '-X', method, origin + path, ...said, ...(sent || [])])} -H "Authorization: Bearer $TOKEN"`
}

/** A command as a line of a shell. */
export const shellLine = (words: string[]): string => words.map(quoted).join(' ')

/** A word as a POSIX shell reads it. */
function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`
}
