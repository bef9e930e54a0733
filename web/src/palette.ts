import type { View } from './views'

/** What the palette offers: a place to go to, or an act of the screen. */
export interface Command {
  name: string
  /** Beside the name: a kind, or a key. */
  note: string
  run: () => void
}

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i

export const SCREENS: { name: string; view: View }[] = [
  { name: 'Executions', view: { screen: 'executions', query: '' } },
  { name: 'Failed executions', view: { screen: 'executions', query: 'status:failed' } },
  { name: 'Playbooks', view: { screen: 'playbooks' } },
  { name: 'Schedules', view: { screen: 'schedules' } },
  { name: 'Triggers', view: { screen: 'triggers' } },
  { name: 'Limits', view: { screen: 'system', part: 'limits' } },
  { name: 'System', view: { screen: 'system', part: 'health' } },
]

/** The execution that the text is the id of. */
export function executionIn(text: string): string | null {
  return ID.exec(text.trim())?.[0] ?? null
}

/** The commands that have all words of the text, those first whose name begins with it. */
export function matching(commands: readonly Command[], text: string): Command[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean)
  const whole = words.join(' ')
  const found = commands.filter(({ name }) => words.every((word) => name.toLowerCase().includes(word)))
  const begins = (one: Command): number => Number(whole !== '' && one.name.toLowerCase().startsWith(whole))
  return found.sort((a, b) => begins(b) - begins(a))
}
