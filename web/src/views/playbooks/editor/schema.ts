import { find, keysOf, member, type Node, type Step } from './outline'

/** The parts of a JSON Schema that say what may stand in a place. */
export interface Schema {
  $ref?: string
  $defs?: Record<string, Schema>
  description?: string
  type?: string | string[]
  const?: unknown
  enum?: unknown[]
  default?: unknown
  properties?: Record<string, Schema>
  additionalProperties?: boolean | Schema
  required?: string[]
  minProperties?: number
  maxProperties?: number
  items?: Schema
  allOf?: Schema[]
  anyOf?: Schema[]
  oneOf?: Schema[]
  not?: Schema
  if?: Schema
  then?: Schema
  else?: Schema
  doNotSuggest?: boolean
}

/** The schemas that hold at a place of a document, as far as what is written so far decides. */
export function schemasAt(root: Schema, document: Node | null, path: readonly Step[]): Schema[] {
  let held = expanded(root, root, document)
  path.forEach((step, index) => {
    const inner = held.flatMap((one) => within(one, step))
    const node = find(document, path.slice(0, index + 1))
    held = inner.flatMap((one) => expanded(root, one, node))
  })
  return held
}

function within(schema: Schema, step: Step): Schema[] {
  if (typeof step === 'number') return schema.items ? [schema.items] : []
  const own = schema.properties?.[step]
  if (own) return [own]
  return typeof schema.additionalProperties === 'object' ? [schema.additionalProperties] : []
}

/** A schema, and all that hold with it. */
function expanded(root: Schema, schema: Schema, node: Node | null, depth = 0): Schema[] {
  if (depth > 24 || schema.doNotSuggest) return []
  const also: Schema[] = []
  const refers = resolved(root, schema)
  if (refers) also.push(refers)
  also.push(...(schema.allOf ?? []), ...(schema.anyOf ?? []), ...(schema.oneOf ?? []))
  if (schema.if) {
    const chosen = matches(root, schema.if, node) ? schema.then : schema.else
    if (chosen) also.push(chosen)
  }
  return [schema, ...also.flatMap((one) => expanded(root, one, node, depth + 1))]
}

function resolved(root: Schema, schema: Schema): Schema | undefined {
  return schema.$ref === undefined ? undefined : root.$defs?.[schema.$ref.replace('#/$defs/', '')]
}

/** Whether what is written matches the condition of an `if`. */
function matches(root: Schema, schema: Schema, node: Node | null, depth = 0): boolean {
  if (depth > 8) return true
  const inner = (one: Schema, of: Node | null): boolean => matches(root, one, of, depth + 1)
  const refers = resolved(root, schema)
  const keys = keysOf(node)
  return (
    (!refers || inner(refers, node)) &&
    isOf(schema, node) &&
    (schema.required ?? []).every((key) => keys.includes(key)) &&
    keys.length >= (schema.minProperties ?? 0) &&
    keys.length <= (schema.maxProperties ?? Infinity) &&
    (schema.allOf ?? []).every((one) => inner(one, node)) &&
    (!schema.anyOf || schema.anyOf.some((one) => inner(one, node))) &&
    (!schema.not || !inner(schema.not, node)) &&
    keys.every((key) => {
      const own = schema.properties?.[key]
      if (own) return inner(own, member(node, key))
      return typeof schema.additionalProperties !== 'object' || inner(schema.additionalProperties, member(node, key))
    })
  )
}

function isOf(schema: Schema, node: Node | null): boolean {
  const words = schema.enum ?? (schema.const === undefined ? undefined : [schema.const])
  if (words && !(node?.is === 'scalar' && words.some((word) => String(word) === node.text))) return false
  if (schema.type === 'object') return node?.is === 'mapping'
  if (schema.type === 'array') return node?.is === 'list'
  return true
}

/** The schema of what a value may be when it is not null. */
export function plainly(schema: Schema): Schema {
  const given = schema.anyOf?.filter((one) => one.type !== 'null') ?? []
  return given[0] ? { ...schema, ...given[0] } : schema
}

/** The keys of which a mapping has just one. */
export const alternatives = (schema: Schema): string[] => (schema.oneOf ?? []).flatMap(({ required }) => (required?.length === 1 ? required : []))

export interface Key {
  name: string
  description: string
}

/** The keys that may stand at a place, beside those that are there. */
export function keysAt(root: Schema, document: Node | null, path: readonly Step[]): Key[] {
  const there = new Set(keysOf(find(document, path)))
  const found = new Map<string, Key>()
  for (const schema of schemasAt(root, document, path)) {
    for (const [name, one] of Object.entries(schema.properties ?? {})) {
      const known = expanded(root, one, null)
      if (known.length === 0 || there.has(name) || found.get(name)?.description) continue
      const description = descriptionOf(known)
      if (!description.startsWith('Reserved')) found.set(name, { name, description })
    }
  }
  return [...found.values()]
}

/** The words that a value may be, where they are known. */
export function valuesAt(root: Schema, document: Node | null, path: readonly Step[]): string[] {
  const words = schemasAt(root, document, path).flatMap((schema) => {
    if (schema.const !== undefined) return [schema.const]
    if (schema.enum) return schema.enum
    return [schema.type].flat().includes('boolean') ? [true, false] : []
  })
  return [...new Set(words.filter((word) => word !== null && word !== '' && typeof word !== 'object').map(String))]
}

/** What the schema says of the key that ends a path: its description, and what it may be. */
export function aboutKey(root: Schema, document: Node | null, path: readonly Step[]): string[] {
  const last = path.at(-1)
  if (typeof last !== 'string') return []
  const held = schemasAt(root, document, path.slice(0, -1)).flatMap((schema) => within(schema, last))
  const known = held.flatMap((one) => expanded(root, one, find(document, path)))
  const words = valuesAt(root, document, path)
  const types = [...new Set(known.flatMap((one) => [one.type].flat()))].filter((type) => type !== undefined && type !== 'null')
  const given = known.find((one) => one.default !== undefined && one.default !== null)
  return [
    descriptionOf(known),
    words.length > 0 ? `One of ${words.join(', ')}.` : types.length > 0 ? `Type: ${types.join(' or ')}.` : '',
    given ? `Default: ${JSON.stringify(given.default)}.` : '',
  ].filter((line) => line !== '')
}

const descriptionOf = (schemas: Schema[]): string => schemas.find((one) => one.description)?.description ?? ''
