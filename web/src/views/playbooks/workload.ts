import type { Inputs } from '../../api/playbooks'
import { schemaFields } from '../../fields/schema'
import { fieldOf, type Field } from '../../fields/values'

/** More fields than these nobody fills in. */
const MOST_FIELDS = 60

/** A field for each input: of its declared type, or else of the type of its default. */
export function inputFields({ workload, schema }: Pick<Inputs, 'workload' | 'schema'>): Field[] {
  const declared = schemaFields(schema, workload)
  const others = Object.entries(workload).filter(([key]) => !declared.some((one) => one.key === key))
  return [...declared, ...others.map(([key, value]) => fieldOf(key, value))].slice(0, MOST_FIELDS)
}
