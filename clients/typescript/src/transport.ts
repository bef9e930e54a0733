import type { Problem } from './documents.js'
import { ApiError, UnexpectedAnswer } from './errors.js'
import { type Frame, Frames } from './frames.js'
import { OutcomeUnknown, PROBLEMS, Unreachable } from './problems.js'
import { Retries, RetryBudget } from './retrying.js'
import { HEADERS } from './verbs.js'

/** What every call takes. */
export interface Asked {
  /** Ends the call. What it has asked for may be done all the same. */
  abort?: AbortSignal | undefined
}

/** What a call takes that changes something: asked again with the same `request_id`, it does nothing twice. */
export interface Changing extends Asked {
  request_id?: string | undefined
}

/** Where a verb is in the HTTP API, and which of its arguments are where. */
export interface Route {
  method: string
  path: string
  query?: readonly string[]
  body?: readonly string[]
  whole?: string
  pairs?: readonly string[]
  media?: string
  takes_key?: boolean
  /** It changes nothing, though it is no GET. */
  reads?: boolean
  /** The response is the content of a file. */
  bytes?: boolean
  next?: string
}

export interface Connecting {
  token?: string
  /** Headers of each request, as of a browser's session. */
  headers?: () => Record<string, string>
  fetch?: typeof fetch
  /** Called with null after each answer, with the error after a refusal, and after each try that no gateway answers. */
  told?: (error: ApiError | null) => void
}

/** A request of the HTTP API, without what proves who asks. */
export interface ApiRequest {
  method: string
  /** With its query. */
  path: string
  headers: Record<string, string>
  body?: string
}

/** How long a request is tried again, in ms; and waits and streams, which have been answered before. */
const PATIENCE = 10_000
export const FOLLOW_PATIENCE = 60_000

const ANSWER = 60_000
/** How much later than its caller waits an answer may come, so that one on its way is not lost. */
export const LATE = 2_000
/** A gateway sends something on a stream of events three times as often. */
const SILENCE = 45_000
/** How often a connection is tried again where no gateway has ever answered: its address may be wrong. */
const REFUSED_CONNECTIONS = 3

const AWAY = [502, 503, 504]
const PROBLEM = 'application/problem+json'

interface Request extends ApiRequest {
  isRepeatable: boolean
  /** How long it asks the gateway to wait, in ms. */
  wait: number
}

type Given = Readonly<Record<string, unknown>>

/** No answer came, or one that may pass. */
class Passing extends Error {
  constructor(
    readonly error: ApiError,
    readonly mayRepeat: boolean,
    readonly again: number,
    readonly most: number,
  ) {
    super(error.message)
  }
}

/** HTTP to one gateway: requests that are safe to repeat are repeated, problems become exceptions. */
export class Transport {
  budget = new RetryBudget()
  #wasAnswered = false

  /** `url` is empty for the origin of a page. */
  constructor(
    readonly url: string,
    readonly connecting: Connecting,
  ) {}

  /** What a verb answers. `end` is until when its caller waits, as `performance.now` has it. */
  async ask(route: Route, given: Given, within = PATIENCE, end = Infinity): Promise<unknown> {
    const request = this.#request(route, given)
    const retries = new Retries(this.budget, within, end)
    const abort = given.abort as AbortSignal | undefined
    for (;;) {
      const time = Math.min(ANSWER + request.wait, Math.max(end - performance.now(), 0) + LATE)
      try {
        const response = await this.#answer(request, AbortSignal.timeout(Math.ceil(time)), abort)
        return await this.#body(response, request)
      } catch (error) {
        if (!(error instanceof Passing)) throw error
        const pause = error.mayRepeat ? retries.pause(error.again, error.most) : null
        if (pause === null) throw error.error
        await sleep(pause, abort)
      }
    }
  }

  /**
   * The frames of a stream after the id `last`, over as many connections as it takes.
   *
   * @param hasMore Whether there is more after an id where a connection has ended in order: gateways stop, too.
   */
  async *follow(
    route: Route,
    given: Given,
    last: string | null,
    hasMore: (last: string | null) => Promise<boolean>,
  ): AsyncGenerator<Frame> {
    const abort = given.abort as AbortSignal | undefined
    let retries = new Retries(this.budget, FOLLOW_PATIENCE)
    for (;;) {
      const request = this.#request(route, given)
      request.headers.Accept = 'text/event-stream'
      if (last !== null) request.headers['Last-Event-ID'] = last
      let lost = new Unreachable(`${this.#name} ends the stream ${route.path} again and again`)
      let [again, most] = [0, Infinity]
      try {
        let isNew = true
        for await (const frame of this.#frames(request, abort)) {
          if (isNew) retries = new Retries(this.budget, FOLLOW_PATIENCE)
          isNew = false
          last = frame.id || last
          yield frame
        }
        if (!(await hasMore(last))) return
      } catch (error) {
        if (!(error instanceof Passing)) throw error
        ;[lost, again, most] = [error.error, error.again, error.most]
      }
      const pause = retries.pause(again, most)
      if (pause === null) throw lost
      await sleep(pause, abort)
    }
  }

  /** Yields the content of a file, piece by piece, without retries. */
  async *download(route: Route, given: Given): AsyncGenerator<Uint8Array> {
    try {
      yield* this.#pieces(this.#request(route, given), given.abort as AbortSignal | undefined)
    } catch (error) {
      throw error instanceof Passing ? error.error : error
    }
  }

  async *#frames(request: Request, abort: AbortSignal | undefined): AsyncGenerator<Frame> {
    const frames = new Frames()
    for await (const piece of this.#pieces(request, abort)) yield* frames.take(piece)
  }

  async *#pieces(request: Request, abort: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
    const silent = new AbortController()
    let timer = setTimeout(() => silent.abort(), SILENCE)
    try {
      const response = await this.#answer(request, silent.signal, abort)
      if (response.status !== 200 || response.body === null) return void (await this.#body(response, request))
      this.#heard(null)
      const reader = (response.body as ReadableStream<Uint8Array>).getReader()
      try {
        for (;;) {
          const { done, value } = await reader.read().catch((error: unknown) => {
            throw abort?.aborted ? error : this.#lost(request, error, true)
          })
          if (done) return
          clearTimeout(timer)
          timer = setTimeout(() => silent.abort(), SILENCE)
          yield value
        }
      } finally {
        await reader.cancel().catch(() => undefined)
      }
    } finally {
      clearTimeout(timer)
    }
  }

  #request(route: Route, given: Given): Request {
    const { headers, ...request } = requestFor(route, given)
    const mine: Record<string, string> = { ...this.connecting.headers?.(), ...headers }
    if (this.connecting.token) mine.Authorization = `Bearer ${this.connecting.token}`
    if (route.takes_key) mine['Idempotency-Key'] = String(given.request_id ?? crypto.randomUUID())
    const isRepeatable = route.method === 'GET' || route.takes_key === true || route.reads === true
    return { ...request, headers: mine, isRepeatable, wait: ms(given.wait) }
  }

  /** Of the gateway, in messages. */
  get #name(): string {
    return this.url || 'the gateway'
  }

  #heard(error: ApiError | null): void {
    this.#wasAnswered = true
    this.connecting.told?.(error)
  }

  async #answer(request: Request, timeout: AbortSignal, abort: AbortSignal | undefined): Promise<Response> {
    const signal = abort ? AbortSignal.any([abort, timeout]) : timeout
    const { method, headers, body } = request
    const init: RequestInit = { method, headers, signal, redirect: 'manual', credentials: 'same-origin' }
    if (body !== undefined) init.body = body
    try {
      return await (this.connecting.fetch ?? fetch)(this.url + request.path, init)
    } catch (error) {
      throw abort?.aborted ? error : this.#lost(request, error, !isRefused(error))
    }
  }

  async #body(response: Response, request: Request): Promise<unknown> {
    const media = (response.headers.get('content-type') ?? '').split(';')[0] ?? ''
    const text = await response.text().catch((error: unknown) => {
      throw this.#lost(request, error, true)
    })
    if (media === PROBLEM) {
      const error = problemError(JSON.parse(text) as Problem)
      this.#heard(error)
      if (response.status !== 429 && response.status !== 503) throw error
      const mayRepeat = response.status === 429 || error.code === 'overloaded' || request.isRepeatable
      throw new Passing(error, mayRepeat, Number(response.headers.get('retry-after') ?? 1) * 1000, Infinity)
    }
    if (AWAY.includes(response.status)) throw this.#lost(request, `it answers ${response.status}`, true)
    if (!response.ok) {
      throw new UnexpectedAnswer(`${this.#name} is not a gateway: it answers ${response.status} with ${media}`)
    }
    this.#heard(null)
    if (text === '') return undefined
    if (media !== 'application/json') return text
    try {
      return JSON.parse(text) as unknown
    } catch (error) {
      throw new UnexpectedAnswer(`${this.#name} answers with something unexpected: ${words(error)}`)
    }
  }

  #lost(request: Request, error: unknown, wasSent: boolean): Passing {
    const most = this.#wasAnswered ? Infinity : REFUSED_CONNECTIONS
    const lost = this.#lostError(request, words(error), wasSent)
    this.connecting.told?.(lost)
    return new Passing(lost, !wasSent || request.isRepeatable, 0, most)
  }

  #lostError(request: Request, why: string, wasSent: boolean): ApiError {
    if (!wasSent) return new Unreachable(`no gateway answers at ${this.#name}: ${why}`, 'does one run there?')
    const key = request.headers['Idempotency-Key']
    if (request.isRepeatable && key === undefined) {
      return new Unreachable(`the connection to ${this.#name} broke: ${why}`)
    }
    const again = key === undefined ? 'look before you ask again' : `ask again with request_id '${key}'`
    const text = `the connection to ${this.#name} broke before the answer came: ${why}`
    return new OutcomeUnknown(text, `it may have been done: ${again}`)
  }
}

/** The request for a route with these arguments. */
export function requestFor(route: Route, given: Given): ApiRequest {
  const headers: Record<string, string> = {}
  for (const [name, header] of Object.entries(HEADERS)) {
    const text = given[name]
    if (typeof text === 'string' && text !== '') headers[header] = headerText(text)
  }
  const path = route.path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(given[name])))
  const query = new URLSearchParams()
  for (const name of route.query ?? []) {
    for (const text of texts(sent(route, given, name))) query.append(name, text)
  }
  const words = query.toString()
  const request = { method: route.method, path: `/api/v1${path}${words && `?${words}`}`, headers }
  const body = bodyOf(route, given)
  if (body === undefined) return request
  headers['Content-Type'] = String(given.media ?? route.media ?? 'application/json')
  return { ...request, body }
}

function bodyOf(route: Route, given: Given): string | undefined {
  if (route.whole !== undefined) {
    const whole = given[route.whole]
    return typeof whole === 'string' ? whole : JSON.stringify(whole)
  }
  const entries = route.body?.map((name) => [name, sent(route, given, name)])
  return entries && JSON.stringify(Object.fromEntries(entries.filter(([, value]) => value !== null && value !== undefined)))
}

/** Labels as `name=value`, times in ISO 8601. */
function sent(route: Route, given: Given, name: string): unknown {
  const value = given[name]
  if (value instanceof Date) return value.toISOString()
  if (!route.pairs?.includes(name) || value === null || value === undefined || Array.isArray(value)) return value
  return Object.entries(value as object).map(([key, one]) => `${key}=${String(one)}`)
}

function texts(value: unknown): string[] {
  if (value === null || value === undefined) return []
  return Array.isArray(value) ? value.flatMap(texts) : [String(value)]
}

/** The ms of a duration such as `30s` or `500ms`. */
function ms(value: unknown): number {
  const found = /^([0-9.]+)(ms|s|m)$/.exec(typeof value === 'string' ? value : '')
  return found ? Number(found[1]) * { ms: 1, s: 1000, m: 60_000 }[found[2] as 'ms' | 's' | 'm'] : 0
}

/** Percent-encoded where it is not plain ASCII. */
const headerText = (text: string): string => text.replace(/[^\x20-\x7e]|%/gu, encodeURIComponent)

const words = (error: unknown): string => {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error
  return cause instanceof Error ? cause.message || cause.name : String(cause)
}

const isRefused = (error: unknown): boolean =>
  error instanceof Error && /ECONNREFUSED|ENOTFOUND|EAI_AGAIN/.test(String((error.cause as { code?: string })?.code))

/** The exception for a problem. An unknown kind, as of a newer gateway, counts as the first with its status. */
function problemError(problem: Problem): ApiError {
  const code = problem.type.split('/problems/').pop() ?? ''
  const alike = Object.values(PROBLEMS).find((one) => new one('').status === problem.status)
  const faults = (problem.errors ?? []).filter((one) => !problem.detail.includes(one.detail))
  const told = (problem.diagnostics ?? []).filter((one) => !problem.detail.includes(one.message)).slice(0, 3)
  const message = [
    problem.detail,
    ...faults.map((one) => `${one.parameter ?? one.pointer ?? 'the body'}: ${one.detail}`),
    ...told.map((one) => `${one.file}:${one.line}:${one.column}: ${one.message}`),
  ].join('; ')
  return new (PROBLEMS[code] ?? alike ?? ApiError)(message, problem.hint ?? '', problem)
}

async function sleep(pause: number, abort: AbortSignal | undefined): Promise<void> {
  abort?.throwIfAborted()
  await new Promise<void>((resolve) => {
    const timer = setTimeout(end, pause)
    function end(): void {
      clearTimeout(timer)
      abort?.removeEventListener('abort', end)
      resolve()
    }
    abort?.addEventListener('abort', end)
  })
  abort?.throwIfAborted()
}
