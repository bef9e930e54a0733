import type { Diagnostic } from 'noetl-stream-client'
import { alternatives, plainly, type Schema } from '../editor/schema'
import type { Path } from './edits'

/** A field of the form of a document: where its value stands, and how it is typed in. */
export interface FormField {
  is: 'field'
  path: Path
  label: string
  kind: 'text' | 'lines' | 'choice' | 'yes' | 'number' | 'JSON'
  note: string
  /** Values of a choice, with what each means; the first is what holds if nothing is written. */
  choices: readonly (readonly [value: string, words: string])[]
  /** Known values that are offered while one types. */
  known?: readonly string[] | 'playbooks'
  isRequired: boolean
  /** Whether its key stays in the text while nothing is typed: it is what was chosen among several. */
  isKept: boolean
}

/** Several keys, of which a document has just one: with what each begins, and its part of the form. */
export interface Choice {
  is: 'choice'
  below: Path
  question: string
  ways: readonly { key: string; words: string; begins: unknown; parts: readonly Part[] }[]
}

export type Part = FormField | Choice

/** What the schema does not say in the words of a form. What is not here is named by its key. */
interface Words {
  label?: string
  /** Of a key that is one of several. */
  way?: string
  choices?: Readonly<Record<string, string>>
  known?: 'playbooks'
}

const WORDS: Readonly<Record<string, Words>> = {
  '/spec/playbook': { way: 'starts a playbook', known: 'playbooks' },
  '/spec/notify': { way: 'sends a message' },
  '/spec/cron': { way: 'cron expressions' },
  '/spec/every': { way: 'at a distance' },
  '/spec/at': { way: 'at given times' },
  '/spec/timezone': { label: 'Time zone' },
  '/spec/overlap': {
    label: 'If one still runs',
    choices: {
      skip: 'skip the new one',
      queue_one: 'let one wait',
      queue_all: 'let all wait',
      cancel: 'cancel the old one',
      terminate: 'end the old one at once',
      allow: 'let them run together',
    },
  },
  '/spec/missed': { label: 'If some were missed', choices: { last: 'start the last one', all: 'start all', none: 'start none' } },
  '/spec/missed_within': { label: 'Missed for at most' },
  '/spec/window/from': { label: 'Not before' },
  '/spec/window/until': { label: 'Not after' },
  '/spec/exclude': { label: 'Not on' },
  '/spec/paused': { label: 'Registered paused' },
  '/spec/on/webhook/verify': {
    label: 'Senders are known by',
    choices: {
      github: 'the signature of GitHub',
      stripe: 'the signature of Stripe',
      slack: 'the signature of Slack',
      hmac: 'an HMAC signature',
      token: 'a token',
      none: 'nothing: anybody may send',
    },
  },
  '/spec/on/execution/path': { label: 'Of the playbook', known: 'playbooks' },
  '/spec/on/execution/status': { label: 'Ended as' },
  '/spec/on/execution/with': { label: 'With keys of ctx' },
  '/spec/on/event/name': { label: 'Name of the event' },
  '/spec/on/event/path': { label: 'Of the playbook', known: 'playbooks' },
  '/spec/when': { label: 'Only when' },
  '/spec/rate/per_minute': { label: 'Starts in a minute at most' },
  '/spec/rate/burst': { label: 'At once after a rest' },
  '/spec/rate/exceeding': { label: 'Events beyond that', choices: { wait: 'wait', drop: 'are dropped' } },
  '/spec/allow_circle': { label: 'What it starts may start it again' },
}
const QUESTIONS: Readonly<Record<string, string>> = {
  'cron every at': 'When it is due',
  'webhook nats execution event': 'On which events',
  'playbook notify': 'What an event does',
}
/** Values that are offered rather than listed, from so many on. */
const MANY = 20

/** The form of the documents of a schema: a field for each value that it has, in its order. */
export const formOf = (schema: Schema): readonly Part[] =>
  ['metadata', 'spec'].flatMap((key) => partsOf(schema.properties?.[key] ?? {}, [key], true))

/** `isThere`: whether it has to be there, and with it what it requires. */
function partsOf(schema: Schema, path: Path, isThere: boolean): Part[] {
  const rivals = alternatives(schema)
  const parts = Object.entries(schema.properties ?? {}).map(([key, one]) => {
    const isNeeded = rivals.includes(key) || (isThere && (schema.required?.includes(key) ?? false))
    return { key, one, inner: partOf(one, [...path, key], isNeeded, rivals.includes(key)) }
  })
  const ways = parts.filter(({ key }) => rivals.includes(key))
  const choice = ways.map(({ key, one, inner }) => ({ key, words: wayOf([...path, key], one), begins: beginning(one), parts: inner }))
  return parts.flatMap(({ key, inner }) => {
    if (!rivals.includes(key)) return inner
    return key === ways[0]?.key ? [{ is: 'choice', below: path, question: QUESTIONS[rivals.join(' ')] ?? 'Which', ways: choice } as const] : []
  })
}

function partOf(given: Schema, path: Path, isRequired: boolean, isKept: boolean): Part[] {
  const schema = plainly(given)
  if (schema.properties) return partsOf(schema, path, isRequired)
  const { label, choices, known } = WORDS[pointerOf(path)] ?? {}
  const values = (schema.enum ?? []).filter((one) => one !== null).map(String)
  const isOffered = values.length > MANY
  const kind = values.length > 0 && !isOffered ? 'choice' : kindOf(schema)
  return [
    {
      is: 'field',
      path,
      label: label ?? named(path.at(-1) ?? ''),
      kind,
      note: `${given.description ?? ''}${kind === 'lines' ? ' One a line.' : ''}`,
      choices: values.map((one) => [one, choices?.[one] ?? ''] as const),
      ...(isOffered ? { known: values } : known ? { known } : {}),
      isRequired,
      isKept,
    },
  ]
}

const named = (key: string): string => `${key.charAt(0).toUpperCase()}${key.slice(1).replaceAll('_', ' ')}`

function wayOf(path: Path, schema: Schema): string {
  const said = WORDS[pointerOf(path)]?.way ?? schema.description ?? path.at(-1) ?? ''
  return `${said.charAt(0).toLowerCase()}${said.slice(1).replace(/\.$/, '')}`
}

function kindOf({ type }: Schema): FormField['kind'] {
  const types = [type].flat().filter((one) => one !== 'null')
  if (types[0] === 'array') return 'lines'
  if (types[0] === 'object') return 'JSON'
  if (types[0] === 'boolean') return 'yes'
  return types[0] === 'integer' ? 'number' : 'text'
}

/** The least that a value has: its required keys. */
function beginning(given: Schema): unknown {
  const schema = plainly(given)
  if (schema.enum) return schema.enum[0]
  if (schema.properties) {
    const [first] = alternatives(schema)
    const keys = first === undefined ? (schema.required ?? []) : [first]
    return Object.fromEntries(keys.map((key) => [key, beginning(schema.properties?.[key] ?? {})]))
  }
  return kindOf(schema) === 'lines' ? [] : ''
}

export const pointerOf = (path: Path): string => path.map((key) => `/${key}`).join('')

/** Whether what the server says is about a field: of its value, or that its key is missing. */
export function isAbout({ pointer, message }: Pick<Diagnostic, 'pointer' | 'message'>, { path }: Pick<FormField, 'path'>): boolean {
  const own = pointerOf(path)
  const isMissing = pointer === pointerOf(path.slice(0, -1)) && message.includes(`\`${path.at(-1) ?? ''}\``)
  return pointer === own || pointer.startsWith(`${own}/`) || isMissing
}
