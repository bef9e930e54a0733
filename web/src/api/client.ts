import { Client, OutcomeUnknown, Unreachable } from 'noetl-stream-client'
import type { Act } from '../acts'
import { connection } from './connection.svelte'
import { csrfToken } from './csrf'
import { signed } from './signed.svelte'

const headers = (): Record<string, string> => ({ 'X-CSRF-Token': csrfToken() })

/** Signs in and out: a code that is refused ends no session. */
export const session = new Client('', { headers })

/** The gateway of this page, called as the browser's session. */
export const client = new Client('', {
  headers,
  told(error) {
    if (error instanceof Unreachable || error instanceof OutcomeUnknown) return connection.lost()
    connection.answered()
    if (error?.problem?.status === 401) signed.refused(error)
  },
})

/** Carries out an act. */
export const perform = ({ verb, given }: Act, reason: string, request_id?: string): Promise<unknown> =>
  (client[verb] as (given: object) => Promise<unknown>)({ ...given, reason, request_id })
