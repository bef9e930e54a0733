import type { ExpectedKey, ExpectedValue, Reason } from 'noetl-stream-client'
import { fieldOf, kindOf, textOf, type Field } from '../../fields/values'
import { typed } from '../../typed'

/** An answer that a wait knows, as a button says it. */
export interface Answer {
  key: string
  /** The keys that lead to it, if it stands inside another. */
  path: readonly string[]
  value: unknown
  label: string
  /** What follows from it. */
  leads: string
}

/** What people do when a key of this name becomes true, and when it becomes false; or when a key gets this text. */
const VERBS: Record<string, readonly [string, string]> = {
  approved: ['Approve', 'Reject'],
  accepted: ['Accept', 'Decline'],
  confirmed: ['Confirm', 'Decline'],
  granted: ['Grant', 'Deny'],
  allowed: ['Allow', 'Deny'],
  rejected: ['Reject', 'Approve'],
  refused: ['Refuse', 'Approve'],
  declined: ['Decline', 'Accept'],
  denied: ['Deny', 'Allow'],
}

/** The answers to a wait for `ctx`, each with a label of its own. */
export function answersOf(expects: readonly ExpectedKey[] = []): Answer[] {
  const all = expects.flatMap(({ key, path = [], values }) =>
    values.map((one) => ({ key, path, value: one.value, label: verbOf(path.at(-1) ?? key, one.value), leads: leadsOf(one) })),
  )
  return all.map((one) => {
    const isAlone = all.filter((other) => other.label === one.label).length === 1
    return one.label !== '' && isAlone ? one : { ...one, label: `Set ${one.key} to ${typed(one.value)}` }
  })
}

function verbOf(key: string, value: unknown): string {
  const word = typeof value === 'string' ? value : (key.split('_').at(-1) ?? key)
  const verbs = Object.hasOwn(VERBS, word.toLowerCase()) ? VERBS[word.toLowerCase()] : undefined
  if (verbs === undefined || typeof value === 'number') return ''
  return value === false ? verbs[1] : verbs[0]
}

function leadsOf({ moves, to }: ExpectedValue): string {
  if (to && to.length > 0) return `goes on to ${to.join(', ')}`
  return moves === false ? 'it goes on waiting' : ''
}

/** A field for a key that a wait expects: of the kind that its values have. */
export function expectedField({ key, values }: ExpectedKey, value?: unknown): Field {
  const [first] = values
  const kind = first === undefined ? 'text' : kindOf(first.value)
  const choices = kind === 'yes or no' ? [] : values.map((one) => textOf(one.value, kind))
  return value === undefined ? fieldOf(key, undefined, { kind, choices }) : fieldOf(key, value, { choices })
}

/** What is known of a key of `ctx`: its value, and the values that waits compare it with. */
export function ctxField(key: string, ctx: Record<string, unknown>, reasons: readonly Reason[]): Field {
  const values = reasons
    .filter((one) => !one.waiting_on?.signal)
    .flatMap((one) => one.waiting_on?.expects ?? [])
    .filter((one) => one.key === key && !one.path)
    .flatMap((one) => one.values)
  return expectedField({ key, values }, Object.hasOwn(ctx, key) ? ctx[key] : undefined)
}
