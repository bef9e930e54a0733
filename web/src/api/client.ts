import { connection } from './connection.svelte'
import { csrfToken } from './csrf'
import { signed } from './signed.svelte'
import type { Problem } from './types'

/** What the gateway refused, or why it could not be asked (`status` 0). `message` is for people. */
export class Refused extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string = '',
    readonly problem: Problem | null = null,
  ) {
    super(message)
  }
}

export type Query = Record<string, string | number | readonly string[] | null | undefined>

export interface Sending {
  query?: Query
  body?: unknown
  media?: string
  reason?: string
  headers?: Record<string, string>
  signal?: AbortSignal
}

/** An address below `/api/v1`; parameters that are null or empty are left out. */
export function address(path: string, query: Query = {}): string {
  const words = new URLSearchParams()
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== '') words.append(name, String(one))
    }
  }
  const text = words.toString()
  return `/api/v1${path}${text && `?${text}`}`
}

/** One segment of a path: slashes within it are written `%2F`. */
export const segment = encodeURIComponent

/**
 * Calls the API as the browser's session.
 *
 * @throws Refused when it is refused or the gateway cannot be reached.
 */
export async function call<T>(method: string, path: string, sending: Sending = {}): Promise<T> {
  const response = await send(method, address(path, sending.query), sending)
  return (response.status === 204 ? null : await response.json()) as T
}

export const get = <T>(path: string, query: Query = {}, signal?: AbortSignal): Promise<T> =>
  call<T>('GET', path, signal ? { query, signal } : { query })

const SESSION = '/api/v1/session'
/** What is asked to have another session, once one has ended. */
const SIGNING_IN = [SESSION, '/api/v1/me']

/** The answer to a request, if it is a success. Once the session has ended, nothing else is asked. */
export async function send(method: string, url: string, sending: Sending = {}): Promise<Response> {
  if (signed.out !== null && !SIGNING_IN.includes(url)) throw signed.out
  const response = await fetched(url, { method, credentials: 'same-origin', ...request(method, sending) }).catch(
    (error: unknown) => {
      if (error instanceof DOMException && error.name === 'AbortError') throw error
      connection.lost()
      throw new Refused(0, 'The gateway does not answer.')
    },
  )
  connection.answered()
  if (response.ok) return response
  const refused = await refusal(response)
  if (response.status === 401 && url !== SESSION) signed.refused(refused)
  throw refused
}

const AGAIN_MS = 500

/** What only reads is asked once more: a server may close a connection just when it is used again. */
async function fetched(url: string, made: RequestInit): Promise<Response> {
  try {
    return await fetch(url, made)
  } catch (error) {
    if (made.method !== 'GET' || made.signal?.aborted) throw error
  }
  await new Promise((resolve) => setTimeout(resolve, AGAIN_MS))
  return fetch(url, made)
}

function request(method: string, sending: Sending): RequestInit {
  const headers: Record<string, string> = { ...sending.headers }
  const made: RequestInit = { headers }
  if (method !== 'GET') headers['X-CSRF-Token'] = csrfToken()
  if (method === 'POST' || method === 'PATCH') headers['Idempotency-Key'] ??= crypto.randomUUID()
  if (sending.reason) headers['X-Reason'] = encodeURIComponent(sending.reason)
  if (sending.body !== undefined) {
    headers['Content-Type'] = sending.media ?? 'application/json'
    made.body = typeof sending.body === 'string' ? sending.body : JSON.stringify(sending.body)
  }
  if (sending.signal) made.signal = sending.signal
  return made
}

async function refusal(response: Response): Promise<Refused> {
  const problem = (await response.json().catch(() => null)) as Problem | null
  if (problem === null) return new Refused(response.status, `The gateway answers ${response.status}.`)
  const unsaid = (problem.errors ?? []).filter((one) => !problem.detail.includes(one.detail))
  const faults = unsaid.map((one) => one.detail).join('; ')
  return new Refused(response.status, faults ? `${problem.detail}: ${faults}` : problem.detail, problem.hint ?? '', problem)
}
