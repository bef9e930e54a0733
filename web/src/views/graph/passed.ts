import type { ArcActivity, ExecutionState, PlacedToken, Reason, RunCounts, StepActivity } from '../../api/types'
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

const WEIGHT = ['running', 'waiting', 'failed', 'cancelled', 'done', 'reused'] as const
/** Reasons of `why` that say how a step goes on, not what it waits for. */
const GOES_ON = new Set(['running', 'queued', 'stopping'])
const WAITING = new Set(['held', 'admission', 'join', 'signal', 'child', 'retry', 'timer', 'limit', 'suspended', 'next'])

/** As they are now; steps to which nothing has happened are missing. */
export function statesNow(steps: readonly StepActivity[], reasons: readonly Reason[]): Map<string, StepState> {
  const found = new Map<string, StepState>()
  for (const { step, runs, iterations, places } of steps) {
    const state = stateOf(runs, places)
    if (state) found.set(step, { ...state, iterations })
  }
  for (const { step, sentence, kind } of reasons) {
    if (step === null) continue
    const state = found.get(step) ?? EMPTY
    const status = GOES_ON.has(kind) ? state.status : 'waiting'
    found.set(step, { ...state, status, waits: [...state.waits, sentence.replaceAll('`', '')] })
  }
  return found
}

/** As they were at a position. */
export function statesAt(state: ExecutionState): Map<string, StepState> {
  const places = new Map(state.places.map((one) => [one.step, one.places]))
  const runs = new Map<string, RunCounts>(state.steps?.map(({ step, ...counts }) => [step, counts]))
  if (state.steps === null) {
    for (const { step, error } of state.results) runs.set(step, error === null ? { done: 1 } : { failed: 1 })
  }
  const found = new Map<string, StepState>()
  for (const step of new Set([...runs.keys(), ...places.keys()])) {
    const known = stateOf(runs.get(step) ?? {}, places.get(step) ?? {})
    if (known) found.set(step, { ...known, iterations: iterationsOf(state.tokens, step), waits: waitsOf(state.tokens, step) })
  }
  return found
}

const EMPTY: StepState = { status: 'waiting', runs: 0, places: {}, iterations: null, waits: [] }

function stateOf(runs: RunCounts, places: Record<string, number>): StepState | null {
  const there = Object.keys(places)
  const count = total(runs)
  if (count === 0 && there.length === 0) return null
  const waits = there.length > 0 && there.every((place) => WAITING.has(place))
  const status = waits ? 'waiting' : (WEIGHT.find((one) => (runs[one] ?? 0) > 0) ?? 'running')
  return { ...EMPTY, status, runs: count, places }
}

function waitsOf(tokens: readonly PlacedToken[], step: string): string[] {
  return tokens.flatMap((one) => {
    const on = one.step === step ? waitsFor(one) : ''
    return on ? [`${one.count > 1 ? `${one.count} ` : ''}${one.place}: ${on}`] : []
  })
}

function iterationsOf(tokens: readonly PlacedToken[], step: string): RunCounts | null {
  const loops = new Map(tokens.filter((one) => one.step === step && one.loop).map((one) => [one.step_run_id, one.loop]))
  if (loops.size === 0) return null
  const counts = { done: 0, failed: 0, skipped: 0, waiting: 0 }
  for (const loop of loops.values()) {
    if (loop === null) continue
    counts.done += loop.ok
    counts.failed += loop.failed
    counts.skipped += loop.skipped
    counts.waiting += loop.count - loop.ok - loop.failed - loop.skipped
  }
  return counts
}

export const total = (counts: RunCounts): number => Object.values(counts).reduce((sum, one) => sum + one, 0)

/** How far loops are: `3/100`. */
export function progress(iterations: RunCounts): string {
  const ahead = (iterations.waiting ?? 0) + (iterations.running ?? 0)
  return `${total(iterations) - ahead}/${total(iterations)}`
}

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
