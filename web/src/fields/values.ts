/** How a value is typed in. */
export const KINDS = ['text', 'number', 'yes or no', 'JSON'] as const
export type Kind = (typeof KINDS)[number]

/** A key with a value as it is typed. */
export interface Field {
  key: string
  kind: Kind
  /** The kinds that its value may be of. */
  kinds: readonly Kind[]
  text: string
  /** Values that are known to be meant. */
  choices: string[]
  /** Whether no other value will do. */
  isClosed: boolean
  /** What is known of it, for people. */
  note: string
  /** What it means to leave it empty: a value like any other, that the key is not sent, or a mistake. */
  empty: 'value' | 'left out' | 'wrong'
  /** Whether the key itself is typed in. */
  isNew: boolean
}

export function kindOf(value: unknown): Kind {
  if (typeof value === 'boolean') return 'yes or no'
  if (typeof value === 'number') return 'number'
  return typeof value === 'string' ? 'text' : 'JSON'
}

/** A value as it is typed; a value that is not there is empty. */
export function textOf(value: unknown, kind: Kind): string {
  if (value === undefined) return ''
  if (kind === 'text') return typeof value === 'string' ? value : JSON.stringify(value)
  return kind === 'JSON' ? JSON.stringify(value, null, 2) : String(value)
}

/** The same text as another kind has it: a text becomes JSON with quotes, and loses them again. */
export function retyped(text: string, from: Kind, to: Kind): string {
  const found = read(text, from)
  if ('fault' in found) return to === 'yes or no' ? '' : text
  if (to === 'yes or no') return found.value === true || found.value === false ? String(found.value) : ''
  return textOf(found.value, to)
}

export type Read = { value: unknown } | { fault: string }

const NUMBER = /^\s*-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\s*$/

/** What was typed, as a value, or what is wrong with it. */
export function read(text: string, kind: Kind): Read {
  if (kind === 'text') return { value: text }
  if (kind === 'yes or no') return text === '' ? { fault: 'Choose one.' } : { value: text === 'true' }
  if (text.trim() === '') return { fault: kind === 'number' ? 'Enter a number.' : 'Enter JSON, such as {"by": "ada"}.' }
  if (kind === 'number' && !NUMBER.test(text)) return { fault: 'This is not a number.' }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return { fault: `This is not JSON: ${error instanceof Error ? error.message : String(error)}` }
  }
  return isExact(value) ? { value } : { fault: 'A browser cannot hold a number of this size exactly: use the command line.' }
}

/** Whether a value came through JavaScript's numbers as it was. */
export function isExact(value: unknown): boolean {
  if (typeof value === 'number') return Number.isFinite(value) && (!Number.isInteger(value) || Number.isSafeInteger(value))
  if (typeof value !== 'object' || value === null) return true
  return Object.values(value).every(isExact)
}

/** A field for a value that is there, or is wanted. */
export function fieldOf(key: string, value: unknown, known: Partial<Field> = {}): Field {
  const kind = known.kind ?? (value === undefined ? 'text' : kindOf(value))
  const text = textOf(value, kind)
  return { key, kind, kinds: KINDS, text, choices: [], isClosed: false, note: '', empty: 'value', isNew: false, ...known }
}

/** What is wrong with the key of a field among its siblings. */
export function keyFault(field: Field, all: readonly Field[]): string {
  if (field.key === '') return 'Enter a name.'
  return all.some((one) => one !== field && one.key === field.key) ? `There is another ${field.key}.` : ''
}

const isLeftOut = ({ text, empty }: Field): boolean => text === '' && empty === 'left out'

/** What is wrong with what was typed for a field. */
export function valueFault(field: Field): string {
  if (isLeftOut(field)) return ''
  if (field.text === '' && field.empty === 'wrong') return 'Enter a value.'
  const found = read(field.text, field.kind)
  return 'fault' in found ? found.fault : ''
}

/** The mapping of all fields that are not left out; null while one of them is wrong. */
export function mappingOf(fields: readonly Field[]): Record<string, unknown> | null {
  if (fields.some((one) => keyFault(one, fields) !== '' || valueFault(one) !== '')) return null
  return Object.fromEntries(
    fields.filter((one) => !isLeftOut(one)).flatMap(({ key, text, kind }) => {
      const found = read(text, kind)
      return 'fault' in found ? [] : [[key, found.value]]
    }),
  )
}

/** The mapping of those fields that are not as they were `before`; null while one of them is wrong. */
export function changesOf(fields: readonly Field[], before: readonly Field[]): Record<string, unknown> | null {
  const isAsBefore = ({ text, kind }: Field, index: number): boolean => text === before[index]?.text && kind === before[index]?.kind
  if (fields.some((one) => one.text === '' && one.empty === 'wrong')) return null
  return mappingOf(fields.filter((one, index) => !isAsBefore(one, index)))
}
