import { INEXACT, isExact } from '../../fields/values'

/** A key of a playbook's `workload`, as a field. `initial` is its default, as it may be typed again. */
export interface Field {
  key: string
  type: 'text' | 'lines' | 'number' | 'boolean' | 'list' | 'object' | 'any'
  initial: string
}

/** Fields for more keys than these nobody fills in: the rest is JSON. */
const MOST_FIELDS = 60

export function fieldsOf(workload: Readonly<Record<string, unknown>>): Field[] {
  return Object.entries(workload)
    .slice(0, MOST_FIELDS)
    .map(([key, value]) => ({ key, type: typeOf(value), initial: initialOf(value) }))
}

function typeOf(value: unknown): Field['type'] {
  if (typeof value === 'string') return value.includes('\n') ? 'lines' : 'text'
  if (typeof value === 'number') return 'number'
  if (typeof value === 'boolean') return 'boolean'
  if (Array.isArray(value)) return 'list'
  return value === null ? 'any' : 'object'
}

function initialOf(value: unknown): string {
  if (typeof value === 'string') return value
  if (value === null) return ''
  return typeof value === 'object' ? JSON.stringify(value, null, 2) : String(value)
}

/** What was entered: the workload to send, only what differs from the defaults, and what is wrong by field. */
export interface Entered {
  workload: Record<string, unknown>
  errors: Record<string, string>
}

/** The name of the field for keys that the playbook does not declare. */
export const MORE = ''

/**
 * @param texts What was typed, by key.
 * @param more A JSON object that goes over the fields; may be empty.
 */
export function read(fields: readonly Field[], texts: Readonly<Record<string, string>>, more: string): Entered {
  const found: Entered = { workload: {}, errors: {} }
  for (const field of fields) {
    const text = texts[field.key] ?? field.initial
    if (text === field.initial) continue
    const value = valueOf(field, text)
    if (value instanceof Error) found.errors[field.key] = value.message
    else found.workload[field.key] = value
  }
  const rest = more.trim() === '' ? {} : json(more, 'object')
  if (rest instanceof Error) found.errors[MORE] = rest.message
  else Object.assign(found.workload, rest)
  return found
}

function valueOf({ type }: Field, text: string): unknown {
  switch (type) {
    case 'text':
    case 'lines':
      return text
    case 'boolean':
      return text === 'true'
    case 'number': {
      const number = Number(text)
      return text.trim() !== '' && Number.isFinite(number) ? exact(number) : new Error('must be a number')
    }
    case 'any':
      try {
        return exact(JSON.parse(text))
      } catch {
        return text
      }
    default:
      return json(text, type)
  }
}

const exact = (value: unknown): unknown => (isExact(value) ? value : new Error(INEXACT))

function json(text: string, type: 'list' | 'object'): unknown {
  const words = type === 'list' ? 'a list, as ["a", "b"]' : 'an object, as {"a": 1}'
  try {
    const value = JSON.parse(text) as unknown
    const is = Array.isArray(value) ? 'list' : value !== null && typeof value === 'object' ? 'object' : ''
    return is === type ? exact(value) : new Error(`must be ${words}`)
  } catch (error) {
    return new Error(`must be ${words}: ${error instanceof Error ? error.message : ''}`)
  }
}
