/** Each status of executions and step runs has a shape of its own, so that colour is not needed to tell them apart. */
export type Shape = 'ring' | 'half' | 'clock' | 'bars' | 'triangle' | 'check' | 'cross' | 'slash' | 'again' | 'play'

export const SHAPES: Record<string, Shape> = {
  pending: 'ring',
  running: 'half',
  waiting: 'clock',
  paused: 'bars',
  compensating: 'again',
  quarantined: 'triangle',
  completed: 'check',
  ok: 'check',
  warning: 'triangle',
  wrong: 'cross',
  skipped: 'ring',
  started: 'play',
  repeated: 'again',
  ignored: 'slash',
  done: 'check',
  failed: 'cross',
  cancelled: 'slash',
  reused: 'again',
}

const ENDED = ['completed', 'failed', 'cancelled']

export const hasEnded = (status: string): boolean => ENDED.includes(status)
