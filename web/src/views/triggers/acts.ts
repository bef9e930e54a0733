import { act, type Act } from '../../acts'

/** The change that only triggers have. */
export const resends = (path: string, number: number): Act =>
  act('resendTriggerEvent', { path, number }, ['noetl-stream', 'trigger', 'resend', path, String(number)])
