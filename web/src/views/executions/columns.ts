import type { ListedExecution } from 'noetl-stream-client'

/** A column beside status and playbook: one of {@link COLUMNS}, `label:NAME` or `input:PATH`. */
export type Column = string

/** The widths of the columns that every execution has, by name. */
export const COLUMNS: Record<string, string> = {
  Execution: '272px',
  Key: 'minmax(80px, 1fr)',
  Labels: 'minmax(80px, 1fr)',
  'Failed step': 'minmax(80px, 1fr)',
  Workers: 'minmax(80px, 1fr)',
  Due: '208px',
  Started: '112px',
  Duration: '88px',
}
export const FIRST: readonly Column[] = ['Execution', 'Labels', 'Started', 'Duration']
const AT_THE_END = ['Started', 'Duration']

/** What a column is called above its cells. */
export const title = (column: Column): string => column.replace(/^(label|input):/, '')

/** The grid of a row: status, playbook, and the chosen columns. */
export function gridOf(columns: readonly Column[]): string {
  return ['136px', 'minmax(160px, 2fr)', ...columns.map((one) => COLUMNS[one] ?? 'minmax(80px, 1fr)')].join(' ')
}

/** The text of a cell that is only text. */
export function cellOf(execution: ListedExecution, column: Column): string {
  if (column === 'Key') return execution.key ?? ''
  if (column === 'Failed step') return execution.failed_step ?? ''
  if (column === 'Workers') return (execution.workers ?? []).join(', ')
  if (column === 'Due') return execution.due ?? ''
  const [kind, ...name] = column.split(':')
  const value = (kind === 'label' ? execution.labels : (execution.inputs ?? {}))[name.join(':')]
  return value === undefined || value === null ? '' : typeof value === 'string' ? value : JSON.stringify(value)
}

/** The columns that may be chosen: those of every execution, and of the labels and inputs that are shown. */
export function offered(rows: readonly ListedExecution[], chosen: readonly Column[]): Column[] {
  const labels = new Set(rows.flatMap((one) => Object.keys(one.labels)).map((name) => `label:${name}`))
  const inputs = new Set(rows.flatMap((one) => Object.keys(one.inputs ?? {})).map((path) => `input:${path}`))
  return [...new Set([...Object.keys(COLUMNS), ...[...labels].sort(), ...[...inputs].sort(), ...chosen])]
}

/** The columns with one more, or without it; times stay at the end. */
export function withColumn(columns: readonly Column[], one: Column): Column[] {
  const rest = columns.includes(one) ? columns.filter((other) => other !== one) : [...columns, one]
  const order = Object.keys(COLUMNS)
  const known = rest.filter((other) => other in COLUMNS && !AT_THE_END.includes(other)).sort((a, b) => order.indexOf(a) - order.indexOf(b))
  return [...known, ...rest.filter((other) => !(other in COLUMNS)), ...AT_THE_END.filter((other) => rest.includes(other))]
}
