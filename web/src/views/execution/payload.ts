import type { WaitingOn } from '../../api/types'
import { fieldOf, textOf, type Field, type Kind } from '../../fields/values'
import { expectedField } from './answers'

/** The fields of a signal's payload, as the playbook's schema or its templates have them; none if it does not say. */
export function payloadFields({ schema, expects = [] }: Pick<WaitingOn, 'schema' | 'expects'>): Field[] {
  const declared = propertiesOf(schema)
  if (declared.length > 0) return declared
  return expects.map((one) => ({ ...expectedField(one), required: true, note: 'The playbook reads it.' }))
}

function propertiesOf(schema: unknown): Field[] {
  if (!isMapping(schema) || !isMapping(schema['properties'])) return []
  const required = Array.isArray(schema['required']) ? schema['required'] : []
  return Object.entries(schema['properties']).map(([key, one]) => {
    const { type, enum: values, default: preset, description } = isMapping(one) ? one : {}
    const kind = kindOfType(type, values)
    return fieldOf(key, preset, {
      kind,
      choices: Array.isArray(values) ? values.map((value) => textOf(value, kind)) : [],
      note: typeof description === 'string' ? description : '',
      required: required.includes(key),
    })
  })
}

const KINDS: Record<string, Kind> = { string: 'text', number: 'number', integer: 'number', boolean: 'yes or no' }

function kindOfType(type: unknown, values: unknown): Kind {
  if (typeof type === 'string') return (Object.hasOwn(KINDS, type) ? KINDS[type] : undefined) ?? 'JSON'
  const isText = Array.isArray(values) && values.every((one) => typeof one === 'string')
  return isText ? 'text' : 'JSON'
}

const isMapping = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
