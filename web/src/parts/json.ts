import { fileOf } from './files'

/** Pictures within a text. SVG is none of them: it is a document. */
const IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/
const LOOKED_AT = 50
const MOST_COLUMNS = 24

/** The columns of a list of rows, in the order in which they first come; none if it is no such list. */
export function columnsOf(list: readonly unknown[]): string[] {
  const found = new Set<string>()
  for (const row of list.slice(0, LOOKED_AT)) {
    if (typeof row !== 'object' || row === null || Array.isArray(row) || kindOf(row) !== 'object') return []
    for (const key of Object.keys(row)) if (found.size < MOST_COLUMNS) found.add(key)
  }
  return [...found]
}

/** Whether a column holds numbers: they stand under each other. */
export function holdsNumbers(rows: readonly Record<string, unknown>[], column: string): boolean {
  const values = rows.slice(0, LOOKED_AT).map((row) => row[column]).filter((value) => value !== undefined && value !== null)
  return values.length > 0 && values.every((value) => typeof value === 'number')
}

/** A value in a cell. */
export const cell = (value: unknown): string =>
  value === undefined ? '' : typeof value === 'string' ? value : JSON.stringify(value)

/** What is known of a value that is not here. */
export interface Absent {
  size: number | null
  /** Where it is: within an event, in the object store, or in the results of a loop's iterations. */
  place: 'event' | 'store' | 'iterations'
}

export function absent(value: unknown): Absent | null {
  if (kindOf(value) !== 'reference') return null
  const { $reference, $large } = value as { $reference?: { size?: unknown; store?: unknown }; $large?: { size?: unknown } }
  const size = ($reference ?? $large)?.size
  const place = $reference === undefined ? 'event' : $reference.store === 'journal' ? 'iterations' : 'store'
  return { size: typeof size === 'number' ? size : null, place }
}

/** A value as a tree shows it. */
export type Kind = 'object' | 'list' | 'rows' | 'text' | 'image' | 'other' | 'reference' | 'file'

export function kindOf(value: unknown): Kind {
  if (Array.isArray(value)) return columnsOf(value).length > 0 ? 'rows' : 'list'
  if (typeof value === 'string') return IMAGE.test(value) ? 'image' : 'text'
  if (typeof value !== 'object' || value === null) return 'other'
  return '$reference' in value || '$large' in value ? 'reference' : fileOf(value) ? 'file' : 'object'
}

export function entriesOf(value: unknown): [string | number, unknown][] {
  if (Array.isArray(value)) return value.map((one, index) => [index, one])
  return Object.entries(value as Record<string, unknown>)
}

/** The template expression that reads what stands there: `fetch.data["the key"][3]`. */
export function expression(root: string, path: readonly (string | number)[]): string {
  const steps = path.map((key) =>
    typeof key === 'string' && /^[A-Za-z_]\w*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`,
  )
  return `{{ ${root}${steps.join('')} }}`
}
