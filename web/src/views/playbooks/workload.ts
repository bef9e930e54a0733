import { schemaFields } from '../../fields/schema'
import { fieldOf, type Field } from '../../fields/values'

/** More fields than these nobody fills in. */
const MOST_FIELDS = 60

/** What a version says of its starts. */
export interface Inputs {
  workload: Record<string, unknown>
  /** The JSON Schema of it. */
  workload_schema?: unknown
  /** Null if it names none. */
  priority: number | null
}

/** A field for each input: of its declared type, or else of the type of its default. */
export function inputFields({ workload, workload_schema }: Pick<Inputs, 'workload' | 'workload_schema'>): Field[] {
  const declared = schemaFields(workload_schema, workload)
  const others = Object.entries(workload).filter(([key]) => !declared.some((one) => one.key === key))
  return [...declared, ...others.map(([key, value]) => fieldOf(key, value))].slice(0, MOST_FIELDS)
}
