import { act, type Act } from '../../acts'

/** Changes of what starts executions by itself. */

const VERBS = {
  schedule: { pause: 'pauseSchedule', resume: 'resumeSchedule', delete: 'deleteSchedule' },
  trigger: { pause: 'pauseTrigger', resume: 'resumeTrigger', delete: 'deleteTrigger' },
} as const

export const asks = (noun: 'schedule' | 'trigger', path: string, verb: 'pause' | 'resume' | 'delete'): Act =>
  act(VERBS[noun][verb], { path }, ['noetl-stream', noun, verb, path])
