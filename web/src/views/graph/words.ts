import type { Arc } from 'noetl-stream-client'
import { failures, placed, progress, type ArcState, type StepState } from './passed'
import type { Undoing } from './undoing'

/** The steps that tokens can still lead to; null if there is no token. Guards are not asked: `ctx` may change. */
export function aheadOf(arcs: readonly Pick<Arc, 'from' | 'to'>[], states: ReadonlyMap<string, StepState> | undefined): Set<string> | null {
  const live = [...(states ?? [])].filter(([, state]) => Object.keys(state.places).length > 0).map(([step]) => step)
  if (live.length === 0) return null
  const next = new Map<string, string[]>()
  for (const { from, to } of arcs) next.set(from, [...(next.get(from) ?? []), to])
  const found = new Set<string>()
  for (const from of live) {
    for (const to of next.get(from) ?? []) {
      if (found.has(to)) continue
      found.add(to)
      live.push(to) // what is pushed is visited as well
    }
  }
  return found
}

/** What a step is for, beside its own work. */
export const alsoOf = (isLast: boolean, undoing: Undoing | null): string[] => [
  ...(isLast ? ['Runs at every end'] : []),
  ...(undoing ? [undoing.words] : []),
]

/** What is known of a step, line by line; the first is how it is. */
export function stepLines(step: string, state: StepState | undefined, ahead: Set<string> | null, also: readonly string[] = []): string[] {
  const follows = ahead?.has(step) ?? false
  if (!state) return [`${step}: has not run${ahead === null ? '' : follows ? ', may still run' : ', and no token leads to it'}`, ...also]
  const failed = state.iterations ? failures(state.iterations) : ''
  const loop = state.iterations ? `, iterations ${progress(state.iterations)}${failed ? `, ${failed}` : ''}` : ''
  const tokens = placed(state.places)
  return [
    `${step}: ${state.status}, ${state.runs} ${state.runs === 1 ? 'run' : 'runs'}${loop}`,
    ...(tokens ? [`Tokens: ${tokens}`] : []),
    ...state.waits,
    ...(follows ? ['May run again'] : []),
    ...also,
  ]
}

/** What is known of an arc, line by line. */
export function arcLines({ from, to, when }: Pick<Arc, 'from' | 'to' | 'when'>, state: ArcState | undefined): string[] {
  return [`${from} to ${to}`, ...(when ? [`when ${when}`] : []), ...(state ? [state.words] : [])]
}
