/** What was typed for a value: JSON if it is some, else text. */
export function entered(text: string): unknown {
  try {
    return JSON.parse(text) as unknown
  } catch {
    return text
  }
}

/** A value as it may be typed again. */
export function typed(value: unknown): string {
  if (value === undefined) return ''
  return typeof value === 'string' && entered(value) === value ? value : JSON.stringify(value)
}
