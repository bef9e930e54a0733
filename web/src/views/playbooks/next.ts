import type { RegisteredSchedule } from 'noetl-stream-client'

/** When a playbook starts next, and by which schedule. */
export interface Next {
  at: string
  schedule: string
}

/** The next start of each playbook that a schedule starts, by path. */
export function nextStarts(schedules: readonly Pick<RegisteredSchedule, 'path' | 'playbook' | 'next'>[]): Map<string, Next> {
  const found = new Map<string, Next>()
  for (const { path, playbook, next } of schedules) {
    const known = found.get(playbook)
    if (next !== null && (known === undefined || next < known.at)) found.set(playbook, { at: next, schedule: path })
  }
  return found
}
