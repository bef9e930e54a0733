/** A value as a tree shows it. */
export type Kind = 'object' | 'list' | 'text' | 'other' | 'reference'

export function kindOf(value: unknown): Kind {
  if (Array.isArray(value)) return 'list'
  if (typeof value === 'string') return 'text'
  if (typeof value !== 'object' || value === null) return 'other'
  return '$reference' in value || '$large' in value ? 'reference' : 'object'
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
