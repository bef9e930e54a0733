import { act, type Act } from '../../acts'
import type { CredentialRequest } from 'noetl-stream-client'
import { isExact } from '../../fields/values'

/** A member of a credential's value, as it is typed. */
export interface Member {
  key: string
  text: string
}

/** A value as it is typed: a text, or members. */
export type Typed = { text: string } | { members: readonly Member[] }

/** The members that a tool reads; of other kinds the value is a text. */
const MEMBERS: Record<string, readonly string[]> = {
  postgres: ['host', 'port', 'database', 'user', 'password'],
  nats: ['url', 'user', 'password'],
  oauth2: ['client_id', 'client_secret'],
}

export const CREDENTIAL_KINDS = ['generic', 'http', ...Object.keys(MEMBERS)]

/** An empty value of a kind. */
export function typedFor(kind: string): Typed {
  const keys = Object.hasOwn(MEMBERS, kind) ? MEMBERS[kind] : undefined
  return keys === undefined ? { text: '' } : { members: keys.map((key) => ({ key, text: '' })) }
}

/** Names and addresses. Whatever else is typed is hidden. */
const OPEN: readonly string[] = ['host', 'port', 'database', 'user', 'username', 'client_id', 'sslmode']

export const isOpen = (key: string): boolean => OPEN.includes(key)

export const isEmpty = (typed: Typed): boolean => ('text' in typed ? typed.text === '' : typed.members.every((one) => one.text === ''))

export type Value = CredentialRequest['value']

/** What is sent, or what is wrong. As in the command line, a text that begins with `{` is JSON. */
export function valueOf(typed: Typed): { value: Value } | { fault: string } {
  if ('members' in typed) {
    const given = typed.members.filter((one) => one.text !== '')
    if (given.length === 0) return { fault: 'Enter a value.' }
    if (given.some((one) => one.key === '')) return { fault: 'Enter a name for each value.' }
    const twice = given.find((one, index) => given.findIndex((other) => other.key === one.key) < index)
    if (twice) return { fault: `There is another ${twice.key}.` }
    return { value: Object.fromEntries(given.map((one) => [one.key, one.text])) }
  }
  if (typed.text.trim() === '') return { fault: 'Enter a value.' }
  if (!typed.text.trimStart().startsWith('{')) return { value: typed.text }
  try {
    const value = JSON.parse(typed.text) as Record<string, unknown>
    return isExact(value) ? { value } : { fault: 'A browser cannot hold one of its numbers exactly: use the command line.' }
  } catch {
    return { fault: 'It begins like a JSON object, and is none.' } // the reason would show a part of it
  }
}

/** A credential, or its next value: what is empty of the rest stays as it was. */
export interface NewCredential {
  name: string
  kind: string
  description: string
  tags: string[]
  value: Value
}

/** The lines of the shell read the value from files: it stands in neither. */
export function storesCredential({ name, value, kind, description, tags }: NewCredential): Act {
  const given = { name, value, ...(kind && { kind }), ...(description && { description }), ...(tags.length > 0 && { tags }) }
  const options = [
    ...(kind ? ['--kind', kind] : []),
    ...(description ? ['--description', description] : []),
    ...tags.flatMap((one) => ['--tag', one]),
    ...['--file', 'value.txt'],
  ]
  return act('putCredential', given, ['noetl-stream', 'credential', 'set', name, ...options], { file: 'body.json' })
}
