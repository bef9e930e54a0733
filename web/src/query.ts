/** The line that filters executions: the words of the command line's options, as `status:failed path:team label:a=b`. */

import type { ListedExecution, Problem } from 'noetl-stream-client'

export const STATUSES = ['pending', 'running', 'waiting', 'paused', 'compensating', 'quarantined', 'completed', 'failed', 'cancelled'] as const

type Status = ListedExecution['status']

export interface Filter {
  status: Status[]
  path: string | null
  label: string[]
  key: string | null
  input: string[]
  failed_step: string | null
  worker: string | null
  error: string | null
  longer_than: string | null
  due: string | null
  started_from: string | null
  started_before: string | null
}

/** The filter that holds for every execution. */
export const ALL: Readonly<Filter> = {
  status: [],
  path: null,
  label: [],
  key: null,
  input: [],
  failed_step: null,
  worker: null,
  error: null,
  longer_than: null,
  due: null,
  started_from: null,
  started_before: null,
}

/** What is wrong with a word of the line, and where. */
export interface Fault {
  from: number
  to: number
  message: string
}

/** A word of the line: `label:env=prod` has a name and a value, a word alone is a path. */
export interface Word {
  name: string
  value: string
  from: number
  to: number
}

export interface Query {
  filter: Filter
  words: Word[]
  faults: Fault[]
}

/** The names of filters, with an example of each. */
export const NAMES: Record<string, string> = {
  status: 'failed,running',
  path: 'team/report',
  label: 'env=prod',
  key: 'order=A-1005',
  input: 'order.id=A-1005',
  'failed-step': 'charge',
  worker: 'worker-shop-1-7-ab12cd34',
  error: '"timed out"',
  'longer-than': '15m',
  due: '2026-12-20',
  since: '2h',
  until: '2026-11-23T06:00Z',
  'older-than': '1d',
}

const WORD = /([a-z-]+):("[^"]*"?|\S*)|"[^"]*"?|\S+/g
const DUE = /^(?=\d|\.\.\d)(\d{4}(-\d\d){0,2}(T\d\d(:\d\d)?)?)?(\.\.(\d{4}(-\d\d){0,2}(T\d\d(:\d\d)?)?)?)?$/
const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, w: 604800 }

export function queryOf(text: string, nowMs: number): Query {
  const filter: Filter = { ...ALL, status: [], label: [], input: [] }
  const faults: Fault[] = []
  const words: Word[] = []
  for (const word of text.matchAll(WORD)) {
    const [from, to] = [word.index, word.index + word[0].length]
    const value = (word[2] ?? word[0]).replace(/^"|"$/g, '')
    const message = take(filter, word[1], value, nowMs)
    words.push({ name: word[1] ?? 'path', value, from, to })
    if (message) faults.push({ from, to, message })
  }
  return { filter, words, faults }
}

/** The parameters of the server, by the word that gives them. */
const GIVES: Record<string, string> = {
  'failed-step': 'failed_step',
  'longer-than': 'longer_than',
  since: 'started_from',
  until: 'started_before',
  'older-than': 'started_before',
}

/** What the server says against words of the line, in its words; nothing where it says it of no word. */
export function refusedWords(words: readonly Word[], problem: Pick<Problem, 'detail' | 'errors'>): Fault[] {
  return words.flatMap(({ name, value, from, to }) => {
    const said = problem.errors?.find((one) => one.parameter === (GIVES[name] ?? name))?.detail
    const message = said ?? (value !== '' && problem.detail.includes(`'${value}'`) ? problem.detail : '')
    return message ? [{ from, to, message }] : []
  })
}

function ago(value: string, nowMs: number): number | null {
  const found = /^(\d+)([smhdw])$/.exec(value)
  return found ? nowMs - Number(found[1]) * (UNITS[found[2] ?? 's'] ?? 1) * 1000 : null
}

function take(filter: Filter, name: string | undefined, value: string, nowMs: number): string {
  if (value === '') return name ? `${name}: needs a value` : ''
  switch (name) {
    case undefined:
      filter.path = value
      return ''
    case 'status': {
      const isStatus = (one: string): one is Status => STATUSES.some((status) => status === one)
      const unknown = value.split(',').filter((one) => !isStatus(one))
      if (unknown.length > 0) return `${unknown.join(', ')} is no status: use ${STATUSES.join(', ')}`
      filter.status.push(...value.split(',').filter(isStatus))
      return ''
    }
    case 'path':
    case 'key':
    case 'worker':
    case 'error':
      filter[name] = value
      return ''
    case 'failed-step':
      filter.failed_step = value
      return ''
    case 'label':
    case 'input':
      if (!/^[^=]+=/.test(value)) return `expected ${name}:KEY=VALUE`
      filter[name].push(value)
      return ''
    case 'longer-than':
      if (!/^\d+(\.\d+)?[smhd]$/.test(value)) return 'expected a duration such as 90s, 15m or 12h'
      filter.longer_than = value
      return ''
    case 'due':
      if (!DUE.test(value)) return 'expected a day such as 2026-12-20, or a range such as 2026-12-01..2026-12-20'
      filter.due = value
      return ''
    case 'since':
    case 'until': {
      const at = ago(value, nowMs) ?? Date.parse(value)
      if (Number.isNaN(at)) return 'expected a time such as 2h or 2026-11-23T06:00Z'
      filter[name === 'since' ? 'started_from' : 'started_before'] = new Date(at).toISOString()
      return ''
    }
    case 'older-than': {
      const at = ago(value, nowMs)
      if (at === null) return 'expected a time such as 30m, 12h or 7d'
      filter.started_before = new Date(at).toISOString()
      return ''
    }
    default:
      return `${name}: is no filter: use ${Object.keys(NAMES).join(', ')}`
  }
}

/** A word of the line; nothing if the line has no way to write this value. */
export function wordOf(name: string, value: string): string {
  if (value.includes('"')) return ''
  return `${name}:${/\s/.test(value) ? `"${value}"` : value}`
}

/** The line with other words of these names, or without any. */
export function withWords(text: string, given: Record<string, string>): string {
  const { words } = queryOf(text, 0)
  const kept = words.filter((word) => !(word.name in given)).map((word) => text.slice(word.from, word.to))
  const added = Object.entries(given).filter(([, value]) => value !== '')
  return [...kept, ...added.map(([name, value]) => wordOf(name, value)).filter(Boolean)].join(' ')
}

/** The line with or without one status. */
export function withStatus(text: string, status: string): string {
  const rest = text.replace(/\s*status:\S*/g, '').trim()
  return text.includes(`status:${status}`) ? rest : `status:${status} ${rest}`.trim()
}
