import type { WaitingOn } from 'noetl-stream-client'
import { schemaFields } from '../../fields/schema'
import type { Field } from '../../fields/values'
import { expectedField } from './answers'

/** The fields of a signal's payload, as the playbook's schema or its templates have them; none if it does not say. */
export function payloadFields({ schema, expects = [] }: Pick<WaitingOn, 'schema' | 'expects'>): Field[] {
  const declared = schemaFields(schema)
  if (declared.length > 0) return declared
  return expects.map((one) => ({ ...expectedField(one), empty: 'wrong', note: 'The playbook reads it.' }))
}
