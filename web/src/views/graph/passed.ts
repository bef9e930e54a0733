import type { ArcActivity, ExecutionState, LoopCounts, PlacedToken, Reason, RunCounts, StepActivity } from 'noetl-stream-client'
import { valuesOf, waitsFor } from '../execution/waits'

/** What the runs of a step come to, where its tokens are, and what they wait for. */
export interface StepState {
  status: string
  runs: number
  /** Tokens by place, in the words of `why`. */
  places: Record<string, number>
  /** Iterations of its loops by status, if it has any. */
  iterations: RunCounts | null
  /** Sentences, each of a token or of several at one place. */
  waits: string[]
}

/** As they are now; steps to which nothing has happened are missing. */
export function statesNow(steps: readonly StepActivity[], reasons: readonly Reason[]): Map<string, StepState> {
  const found = new Map<string, StepState>()
  for (const { step, status, runs, iterations, places } of steps) {
    if (status) found.set(step, { status, runs: total(runs), places, iterations, waits: [] })
  }
  for (const { step, sentence } of reasons) {
    const state = step === null ? undefined : found.get(step)
    if (step !== null && state) found.set(step, { ...state, waits: [...state.waits, sentence.replaceAll('`', '')] })
  }
  return found
}

/** As they were at a position. */
export function statesAt(state: ExecutionState): Map<string, StepState> {
  const places = new Map(state.places.map((one) => [one.step, one.places]))
  const runs = new Map<string, RunCounts>(state.steps?.map(({ step, ...counts }) => [step, counts]))
  if (state.steps === null) for (const { step } of state.results) runs.set(step, { done: 1 })
  return new Map(
    (state.statuses ?? []).map(({ step, status }) => [
      step,
      {
        status,
        runs: total(runs.get(step) ?? {}),
        places: places.get(step) ?? {},
        iterations: iterationsOf(state.tokens, step),
        waits: waitsOf(state.tokens, step),
      },
    ]),
  )
}

function waitsOf(tokens: readonly PlacedToken[], step: string): string[] {
  return tokens.flatMap((one) => {
    const on = one.step === step ? waitsFor(one) : ''
    return on ? [`${one.count > 1 ? `${one.count} ` : ''}${one.place}: ${on}`] : []
  })
}

function iterationsOf(tokens: readonly PlacedToken[], step: string): RunCounts | null {
  const loops = new Map(tokens.filter((one) => one.step === step && one.loop).map((one) => [one.step_run_id, one.loop]))
  const counts = [...loops.values()].flatMap((loop) => (loop ? [countsOf(loop)] : []))
  return counts.length > 0 ? counts.reduce(added) : null
}

/** The iterations of a loop by status. */
export const countsOf = ({ count, ok, failed, skipped }: LoopCounts): RunCounts => ({
  done: ok,
  failed,
  skipped,
  waiting: count - ok - failed - skipped,
})

const added = (a: RunCounts, b: RunCounts): RunCounts =>
  Object.fromEntries([...new Set([...Object.keys(a), ...Object.keys(b)])].map((key) => [key, (a[key as keyof RunCounts] ?? 0) + (b[key as keyof RunCounts] ?? 0)]))

export const total = (counts: RunCounts): number => Object.values(counts).reduce((sum, one) => sum + one, 0)

/** How far loops are, of all iterations those that have ended in any way: `1,203/2,000`. */
export function progress(iterations: RunCounts): string {
  const ahead = (iterations.waiting ?? 0) + (iterations.running ?? 0)
  return `${(total(iterations) - ahead).toLocaleString('en')}/${total(iterations).toLocaleString('en')}`
}

/** How many iterations failed: `4 failed`; empty if none did. */
export const failures = ({ failed = 0 }: RunCounts): string => (failed > 0 ? `${failed.toLocaleString('en')} failed` : '')

export interface Part {
  status: string
  from: number
  to: number
}

/** The statuses of iterations as parts of a line from 0 to 1, what has ended first. */
export function partsOf(iterations: RunCounts): Part[] {
  const all = total(iterations)
  let at = 0
  return (['done', 'reused', 'skipped', 'failed', 'cancelled', 'running'] as const).flatMap((status) => {
    const from = at
    at += (iterations[status] ?? 0) / Math.max(1, all)
    return at > from ? [{ status, from, to: at }] : []
  })
}

/** Tokens for people: `2 held, 1 running`. */
export const placed = (places: Record<string, number>): string =>
  Object.entries(places)
    .map(([place, count]) => `${count} ${place}`)
    .join(', ')

/** How often an arc was taken, and in words what it last decided by. */
export interface ArcState {
  fired: number
  words: string
}

/** What is known of the playbook that a step has called, and of those which that has called. */
export interface Inside {
  states: Map<string, StepState>
  arcs: Map<string, ArcState>
  inner: Map<string, Inside>
}

/** An arc, by the step it leaves and its place there: two may lead to one step. */
export const arcKey = (arc: { from: string; index: number }): string => `${arc.from} ${arc.index}`

export function arcStatesOf(arcs: readonly ArcActivity[]): Map<string, ArcState> {
  return new Map(arcs.map((arc) => [arcKey(arc), { fired: arc.fired, words: wordsOf(arc) }]))
}

function wordsOf({ fired, skipped, last }: ArcActivity): string {
  const known = last?.guard ? valuesOf(last.guard) : ''
  return `taken ${times(fired)}, not taken ${times(skipped)}${known ? `; last: ${known}` : ''}`
}

const times = (count: number): string => (count === 1 ? 'once' : `${count} times`)
