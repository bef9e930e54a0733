import { fieldOf, kindOf, KINDS, textOf, type Field, type Kind } from './values'

type Mapping = Record<string, unknown>

const isMapping = (value: unknown): value is Mapping => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Fields for the properties of a JSON Schema, in their order; none if it has none. */
export function schemaFields(schema: unknown, defaults: Readonly<Mapping> = {}): Field[] {
  const { properties, required } = isMapping(schema) ? schema : {}
  const needed = Array.isArray(required) ? required : []
  return Object.entries(isMapping(properties) ? properties : {}).map(([key, one]) =>
    propertyField(key, isMapping(one) ? one : {}, Object.hasOwn(defaults, key) ? defaults[key] : undefined, needed.includes(key)),
  )
}

/** Whether a value may have keys that its schema does not name. */
export const takesMore = (schema: unknown): boolean => !isMapping(schema) || schema['additionalProperties'] !== false

const OF_TYPES: Record<string, Kind> = { string: 'text', number: 'number', integer: 'number', boolean: 'yes or no' }

function propertyField(key: string, schema: Mapping, value: unknown, isRequired: boolean): Field {
  const values = Array.isArray(schema['enum']) ? (schema['enum'] as unknown[]) : null
  const types = [schema['type'] ?? []].flat()
  const given = value === undefined ? schema['default'] : value
  // A null that will not do stands for a value that is to be given.
  const preset = given === null && types.length > 0 && !types.includes('null') ? undefined : given
  const kinds = values ? [kindOfAll(values)] : kindsOf(types)
  const kind = preset === undefined || !kinds.includes(kindOf(preset)) ? (kinds[0] ?? 'JSON') : kindOf(preset)
  const isNeeded = isRequired || given === null
  return fieldOf(key, preset, {
    kind,
    kinds,
    choices: (values ?? []).map((one) => textOf(one, kind)),
    isClosed: values !== null,
    note: noteOf(schema),
    empty: preset !== undefined && value !== undefined ? 'value' : isNeeded ? 'wrong' : 'left out',
  })
}

/** The kind in which each of some values can be typed, and none of them is empty. */
function kindOfAll(values: readonly unknown[]): Kind {
  const [first] = values.map(kindOf)
  return first !== undefined && values.every((one) => kindOf(one) === first && one !== '') ? first : 'JSON'
}

/** The kinds of a schema's types; `JSON` takes what no other does. */
function kindsOf(types: readonly unknown[]): readonly Kind[] {
  if (types.length === 0) return ['JSON', ...KINDS.filter((kind) => kind !== 'JSON')]
  return [...new Set(types.map((type) => (typeof type === 'string' && Object.hasOwn(OF_TYPES, type) ? OF_TYPES[type] : undefined) ?? 'JSON'))]
}

function noteOf(schema: Mapping): string {
  const said = typeof schema['description'] === 'string' ? [schema['description']] : []
  const [least, most] = [schema['minimum'] ?? schema['minLength'], schema['maximum'] ?? schema['maxLength']].map((one) =>
    typeof one === 'number' ? String(one) : '',
  )
  const unit = 'minLength' in schema || 'maxLength' in schema ? ' characters' : ''
  if (least && most) said.push(`${least} to ${most}${unit}.`)
  else if (least || most) said.push(`At ${least ? `least ${least}` : `most ${most}`}${unit}.`)
  if (typeof schema['pattern'] === 'string') said.push(`Matches ${schema['pattern']}`)
  return said.join(' ')
}
