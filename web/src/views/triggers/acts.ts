import type { Act } from '../../acts'
import { at } from '../starters/acts'

/** The change that only triggers have. */
export const resends = (path: string, number: number): Act => ({
  method: 'POST',
  path: at('trigger', path, `/events/${number}/resend`),
  cli: ['noetl-stream', 'trigger', 'resend', path, String(number)],
})
