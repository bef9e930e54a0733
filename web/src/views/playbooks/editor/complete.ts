import { member, keysOf, placeAt, type Node, type Place } from './outline'
import { namesIn, stepAt, type Names } from './names'
import { keysAt, valuesAt, type Schema } from './schema'

/** Something that may be written. `adds` is what follows it. */
export interface Option {
  label: string
  detail: string
  kind: 'key' | 'value' | 'name'
  adds: string
}

export interface Completion {
  from: number
  options: Option[]
}

/** What may be written at an offset: keys and words of the schema, and the names of the playbook itself. */
export function completion(schema: Schema | null, text: string, offset: number): Completion | null {
  const expression = expressionBefore(text, offset)
  if (expression !== null) return inExpression(text, offset, expression)
  const place = placeAt(text, offset)
  const options = place.at === 'key' ? keyOptions(schema, place) : valueOptions(schema, place)
  return options.length > 0 ? { from: place.from, options } : null
}

function keyOptions(schema: Schema | null, place: Place): Option[] {
  if (schema === null) return []
  return keysAt(schema, place.outline, place.path.slice(0, -1)).map(({ name, description }) => ({
    label: name,
    detail: description,
    kind: 'key',
    adds: ': ',
  }))
}

function valueOptions(schema: Schema | null, place: Place): Option[] {
  const names = namedAt(place)
  if (names !== null) return names.map((label) => ({ label, detail: 'of this playbook', kind: 'name', adds: '' }))
  if (schema === null) return []
  return valuesAt(schema, place.outline, place.path).map((label) => ({ label, detail: '', kind: 'value', adds: '' }))
}

/** The names of the playbook that a key refers to; null for any other key. */
function namedAt({ path, outline }: Place): string[] | null {
  const key = path.at(-1)
  const names = namesIn(outline)
  if (key === 'step' && path.includes('arcs')) return names.steps
  if (key === 'entry_step') return names.steps
  if (key === 'to' && path.at(-2) === 'then') return names.tasks.get(stepAt(outline, path) ?? '') ?? []
  if (key === 'auth' || key === 'credential') return names.keychain
  if (key === 'task' && names.workbook.length > 0) return names.workbook
  return null
}

const NAMESPACES: Record<string, string> = {
  workload: 'what the execution was started with',
  ctx: 'state of the execution',
  vars: 'of this step run',
  iter: 'of this iteration',
  args: 'of the arc that leads here',
  keychain: 'secrets, in tool inputs',
  steps: 'results of steps',
  results: 'results of tasks of this step',
  outcome: 'of the task, in its policy',
  event: 'how the step ended, in arcs',
  execution_id: '',
  execution: 'when and by what it was started',
  _prev: 'result of the task before',
  _attempt: 'from 1',
}
const FIELDS: Record<string, string[]> = {
  outcome: ['status', 'result', 'error', 'meta', 'http', 'pg', 'py'],
  'outcome.error': ['kind', 'message', 'retryable', 'retry_after_s'],
  'outcome.http': ['status', 'headers'],
  'outcome.meta': ['attempt', 'started_at', 'ended_at', 'duration_s', 'worker', 'trace_id'],
  event: ['name', 'status', 'result', 'error', 'loop'],
  'event.loop': ['count', 'ok', 'failed', 'skipped', 'failed_leaves'],
  'event.error': ['kind', 'message'],
  execution: ['due', 'started', 'origin'],
  'execution.origin': ['kind', 'path', 'number', 'execution_id'],
}
const RESULT = ['data', 'outcome', 'results']

/** The expression that an offset stands in, up to there; null outside of `{{ }}`. */
function expressionBefore(text: string, offset: number): string | null {
  const before = text.slice(Math.max(0, offset - 2000), offset)
  const open = before.lastIndexOf('{{')
  return open > before.lastIndexOf('}}') ? before.slice(open + 2) : null
}

function inExpression(text: string, offset: number, expression: string): Completion | null {
  const path = /[A-Za-z_][\w.]*$|$/.exec(expression)?.[0] ?? ''
  const dot = path.lastIndexOf('.')
  // The text without the expression, which may be open: what follows it is read as it stands.
  const opened = offset - expression.length - 2
  const closed = `${text.slice(0, opened)}zz${text.slice(Math.max(offset, restOf(text, offset)))}`
  const { path: at, outline } = placeAt(closed, opened + 2)
  const names = namesIn(outline)
  const tasks = names.tasks.get(stepAt(outline, at) ?? '') ?? []
  const options = dot < 0 ? bare(names, tasks) : below(path.slice(0, dot), names, tasks)
  return options.length > 0 ? { from: offset - path.length + dot + 1, options } : null
}

/** The end of the expression that an offset stands in. */
function restOf(text: string, offset: number): number {
  const rest = /^[^\n]*?\}\}/.exec(text.slice(offset))
  return rest ? offset + rest[0].length : offset
}

const named = (labels: Iterable<string>, detail: string): Option[] =>
  [...new Set(labels)].map((label) => ({ label, detail, kind: 'name', adds: '' }))

function bare(names: Names, tasks: string[]): Option[] {
  const spaces: Option[] = Object.entries(NAMESPACES).map(([label, detail]) => ({ label, detail, kind: 'value', adds: '' }))
  return [...named(tasks, 'task'), ...named(names.steps, 'step'), ...named(keysOf(names.workload), 'workload'), ...spaces]
}

function below(path: string, names: Names, tasks: string[]): Option[] {
  const [first = '', ...rest] = path.split('.')
  if (first === 'workload') {
    const inner = rest.reduce<Node | null>((node, key) => member(node, key), names.workload)
    return named(keysOf(inner), 'workload')
  }
  const known = FIELDS[path]
  if (known) return named(known, first)
  if (rest.length > 0) return rest.length === 1 && (first === 'steps' || first === 'results') ? named(RESULT, 'result') : []
  const keys: Record<string, string[]> = {
    ctx: names.ctx,
    vars: names.vars,
    iter: [...names.iter, 'index', 'count', 'parent'],
    args: [...names.args, 'by_step', 'arrivals'],
    keychain: names.keychain,
    steps: names.steps,
    results: tasks,
  }
  const own = keys[first]
  if (own) return named(own, first)
  return names.steps.includes(first) || tasks.includes(first) ? named(RESULT, 'result') : []
}
