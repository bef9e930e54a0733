import { act, type Act } from '../../acts'
import type { BulkItem } from 'noetl-stream-client'
import type { Filter } from '../../query'

export const BULK_VERBS = ['cancel', 'pause', 'resume', 'retry', 'rerun', 'delete'] as const
export type BulkVerb = (typeof BULK_VERBS)[number]

/** The operation that a role needs for a verb. */
export const operationOf = (verb: BulkVerb) => `${verb}Executions` as const

/** Which executions: those that are marked, or all that a filter finds. */
export type Selection = { ids: string[] } | { filter: Filter }

/** The most that one call takes. */
export const MOST_AT_ONCE = 1000

/** The arguments for a selection; the conditions that a filter does not have are left out. */
export function selected(selection: Selection): Partial<Filter> & { ids?: string[]; limit?: number } {
  if ('ids' in selection) return { ids: selection.ids }
  const given = Object.entries(selection.filter).filter(([, value]) => value !== null && value.length > 0)
  return { ...Object.fromEntries(given), limit: MOST_AT_ONCE }
}

/** The call that acts on a selection, and the same as a line of the shell. */
export function bulkAct(verb: BulkVerb, selection: Selection, step: string): Act {
  const given = { ...selected(selection), ...(verb === 'rerun' && { step }) }
  const which = 'ids' in selection ? selection.ids : options(selection.filter)
  const from = verb === 'rerun' ? ['--from', step] : []
  return act(operationOf(verb), given, ['noetl-stream', 'execution', verb, ...which, ...from])
}

function options(filter: Filter): string[] {
  const words: [string, string | null][] = [
    ...filter.status.map((one): [string, string] => ['--status', one]),
    ['--path', filter.path],
    ...filter.label.map((one): [string, string] => ['--label', one]),
    ['--key', filter.key],
    ...filter.input.map((one): [string, string] => ['--input', one]),
    ['--failed-step', filter.failed_step],
    ['--worker', filter.worker],
    ['--error', filter.error],
    ['--longer-than', filter.longer_than],
    ['--due', filter.due],
    ['--since', filter.started_from],
    ['--until', filter.started_before],
  ]
  return words.flatMap(([name, value]) => (value === null ? [] : [name, value]))
}

/** Why executions are skipped or were refused, the most frequent reason first. */
export function reasons(items: readonly BulkItem[]): { detail: string; count: number }[] {
  const counted = new Map<string, number>()
  for (const { detail } of items) if (detail) counted.set(detail, (counted.get(detail) ?? 0) + 1)
  return [...counted].map(([detail, count]) => ({ detail, count })).sort((a, b) => b.count - a.count)
}

/** The marks with one more, or without it. */
export function toggled(marks: ReadonlySet<string>, id: string): Set<string> {
  const changed = new Set(marks)
  if (!changed.delete(id)) changed.add(id)
  return changed
}

/** The marks and all rows between two of the list, both included. */
export function withRange(marks: ReadonlySet<string>, ids: readonly string[], from: number, to: number): Set<string> {
  const [first, last] = from < to ? [from, to] : [to, from]
  return new Set([...marks, ...ids.slice(Math.max(0, first), last + 1)])
}
