import type { Filter } from '../query'
import { address, call, get, segment, send } from './client'
import type {
  Bulk,
  CallPage,
  Ctx,
  EventPage,
  Execution,
  ExecutionDiff,
  ExecutionGroups,
  ExecutionHistogram,
  ExecutionGraph,
  ExecutionPage,
  ExecutionState,
  IterationSummaries,
  KeyChangePage,
  ListedEvent,
  LogPage,
  LoopStrip,
  Result,
  StepRun,
  StepRunResult,
  StepRuns,
  Timeline,
  Why,
} from './types'

const one = (id: string): string => `/executions/${segment(id)}`

export const listed = (filter: Filter, limit: number, cursor: string | null = null): Promise<ExecutionPage> =>
  get('/executions', { ...filter, limit, cursor })

export const counted = (filter: Filter, bars: number): Promise<ExecutionHistogram> =>
  get('/executions/histogram', { ...filter, bars })
export const grouped = (filter: Filter, by: string): Promise<ExecutionGroups> => get('/executions/groups', { ...filter, by })

export const execution = (id: string): Promise<Execution> => get(one(id))
export const stepRuns = (id: string, query: { first?: number; limit: number; step?: string; step_run_id?: string; order?: string }): Promise<StepRuns> =>
  get(`${one(id)}/steps`, query)
export const runResult = async (id: string, run: string): Promise<unknown> =>
  (await get<StepRunResult>(`${one(id)}/steps/${segment(run)}/result`)).result
/** A run of a step: the one with this id, or the last. */
export async function lastRun(id: string, step: string, run: string | null): Promise<StepRun | undefined> {
  if (run !== null) return (await stepRuns(id, { limit: 1, step_run_id: run })).items[0]
  const { count } = await stepRuns(id, { limit: 1, step })
  return (await stepRuns(id, { first: Math.max(0, (count ?? 1) - 1), limit: 1, step })).items[0]
}
export const strip = (id: string, run: string, query: { first: number; end: number | null; buckets: number }): Promise<LoopStrip> =>
  get(`${one(id)}/steps/${segment(run)}/strip`, query)
export const iterations = (
  id: string,
  run: string,
  query: { first: number; end: number; status: string; limit: number },
): Promise<IterationSummaries> => get(`${one(id)}/steps/${segment(run)}/iterations/summaries`, query)

/** An event with all of its parts, as it is listed where no fields are asked for. */
export type Event = Required<Omit<ListedEvent, 'step'>>
/** What a list shows of an event: without its data. */
export const LISTED = ['position', 'ts', 'name', 'status', 'step_run_id', 'actor', 'task', 'iteration', 'step'] as const
export type EventRow = Required<Pick<ListedEvent, (typeof LISTED)[number]>>
export interface EventChoice {
  name?: string
  step?: string
  task?: string
  text?: string
  iteration?: string
}
export const eventRows = (
  id: string,
  query: EventChoice & { after: number; limit: number },
  signal?: AbortSignal,
): Promise<EventPage & { items: EventRow[] }> => get(`${one(id)}/events`, { ...query, field: LISTED }, signal)
export const eventAt = async (id: string, position: number): Promise<Event | undefined> =>
  (await get<{ items: Event[] }>(`${one(id)}/events`, { after: position - 1, limit: 1 })).items[0]
/** The execution that a step has called last. */
export async function lastCall(id: string, step: string): Promise<string | undefined> {
  const [called] = (await get<{ items: Event[] }>(`${one(id)}/events`, { before: 2 ** 31 - 1, limit: 1, name: 'child.requested', step })).items
  return called?.data['execution_id'] as string | undefined
}
/** The executions that it has called, in order. */
export const callsOf = (id: string, cursor: string | null): Promise<CallPage> => get(`${one(id)}/calls`, { limit: 100, cursor })
/** All of its inputs, however large. */
export async function inputsOf(id: string): Promise<unknown> {
  const [started] = (await get<{ items: Event[] }>(`${one(id)}/events`, { after: 0, limit: 1, name: 'execution.started' })).items
  return started?.data['workload']
}
export const stateAt = (id: string, position: number, signal: AbortSignal): Promise<ExecutionState> =>
  get(`${one(id)}/state`, { position }, signal)
export const timeline = (
  id: string,
  query: { since: string | undefined; until: string | undefined; width: number; first?: number; folded?: string; toggled?: string[] },
  signal: AbortSignal,
): Promise<Timeline> => get(`${one(id)}/timeline`, query, signal)
export const changesOf = (id: string, key: string, cursor: string | null): Promise<KeyChangePage> =>
  get(`${one(id)}/ctx/changes`, { key, cursor, limit: 50 })
/** With what is read of a long journal by now: up to its `position`. */
export const graphOf = (id: string): Promise<ExecutionGraph> => get(`${one(id)}/graph`, { so_far: 'true' })
export const why = (id: string): Promise<Why> => get(`${one(id)}/why`)
export const diffOf = (a: string, b: string, rows: string, cursor: string | null): Promise<ExecutionDiff> =>
  get(`${one(a)}/diff/${segment(b)}`, { rows, cursor, limit: 100 })
export const ctxOf = (id: string): Promise<Ctx> => get(`${one(id)}/ctx`)
export const resultOf = (id: string): Promise<Result> => get(`${one(id)}/result`)
/** How many bytes of a log are downloaded: a browser holds them in memory. */
const MOST_LOG_BYTES = 64_000_000

/** What tasks have written, as text, page by page. */
export async function logText(id: string, query: Record<string, string>): Promise<Blob> {
  const parts: Blob[] = []
  let after: string | null = null
  let bytes = 0
  do {
    const url = address(`${one(id)}/logs`, { ...query, after, limit: 1000 })
    const response = await send('GET', url, { headers: { Accept: 'text/plain' } })
    const part = await response.blob()
    parts.push(part)
    bytes += part.size
    after = nextIn(response.headers.get('Link'))
  } while (after !== null && bytes < MOST_LOG_BYTES)
  return new Blob(parts, { type: 'text/plain' })
}

function nextIn(link: string | null): string | null {
  const found = /<([^>]*)>; rel="next"/.exec(link ?? '')
  return found?.[1] === undefined ? null : new URL(found[1], location.origin).searchParams.get('after')
}

export const logsOf = (id: string, query: Record<string, string>): Promise<LogPage> => get(`${one(id)}/logs`, query)

/** A verb for many executions; asked again with the same key, nothing is done twice. */
export const bulk = (verb: string, body: Record<string, unknown>, reason: string, key: string): Promise<Bulk> =>
  call('POST', `/bulk/${verb}`, { body, reason, headers: { 'Idempotency-Key': key } })

/** Carries out an act. */
export const perform = (act: { method: string; path: string; body?: unknown; media?: string }, reason: string): Promise<unknown> =>
  call(act.method, act.path, { body: act.body, reason, ...(act.media ? { media: act.media } : {}) })
