/** The line that filters executions: the words of the command line's options, as `status:failed path:team label:a=b`. */

export const STATUSES = ['pending', 'running', 'waiting', 'paused', 'quarantined', 'completed', 'failed', 'cancelled'] as const

export interface Filter {
  status: string[]
  path: string | null
  label: string[]
  error: string | null
  started_from: string | null
  started_before: string | null
}

/** What is wrong with a word of the line, and where. */
export interface Fault {
  from: number
  to: number
  message: string
}

export interface Query {
  filter: Filter
  faults: Fault[]
}

const WORD = /([a-z-]+):("[^"]*"?|\S*)|"[^"]*"?|\S+/g
const UNITS: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400 }

export function queryOf(text: string, nowMs: number): Query {
  const filter: Filter = { status: [], path: null, label: [], error: null, started_from: null, started_before: null }
  const faults: Fault[] = []
  for (const word of text.matchAll(WORD)) {
    const message = take(filter, word[1], (word[2] ?? word[0]).replace(/^"|"$/g, ''), nowMs)
    if (message) faults.push({ from: word.index, to: word.index + word[0].length, message })
  }
  return { filter, faults }
}

function take(filter: Filter, name: string | undefined, value: string, nowMs: number): string {
  if (value === '') return name ? `${name}: needs a value` : ''
  switch (name) {
    case undefined:
      filter.path = value
      return ''
    case 'status': {
      const unknown = value.split(',').filter((one) => !STATUSES.some((status) => status === one))
      if (unknown.length > 0) return `${unknown.join(', ')} is no status: use ${STATUSES.join(', ')}`
      filter.status.push(...value.split(','))
      return ''
    }
    case 'path':
      filter.path = value
      return ''
    case 'label':
      if (!/^[^=]+=/.test(value)) return 'expected label:KEY=VALUE'
      filter.label.push(value)
      return ''
    case 'error':
      filter.error = value
      return ''
    case 'since':
    case 'until': {
      const at = Date.parse(value)
      if (Number.isNaN(at)) return 'expected a time such as 2026-11-23T06:00Z'
      filter[name === 'since' ? 'started_from' : 'started_before'] = new Date(at).toISOString()
      return ''
    }
    case 'older-than': {
      const found = /^(\d+)([smhd])$/.exec(value)
      if (!found) return 'expected a time such as 30m, 12h or 7d'
      filter.started_before = new Date(nowMs - Number(found[1]) * (UNITS[found[2] ?? 's'] ?? 1) * 1000).toISOString()
      return ''
    }
    default:
      return `${name}: is no filter: use status, path, label, error, since, until or older-than`
  }
}

/** The line with or without one status. */
export function withStatus(text: string, status: string): string {
  const rest = text.replace(/\s*status:\S*/g, '').trim()
  return text.includes(`status:${status}`) ? rest : `status:${status} ${rest}`.trim()
}
