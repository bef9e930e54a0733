import type { Layout } from './layout'
import { progress, type StepState } from './passed'

/** A part of a graph, in pixels of its layout. */
export interface Area {
  x: number
  y: number
  width: number
  height: number
}

/** Whether a part of a graph that is drawn at a place is in an area. */
export const meets = (part: Area, area: Area, x: number, y: number): boolean =>
  part.x + x <= area.x + area.width &&
  part.x + x + part.width >= area.x &&
  part.y + y <= area.y + area.height &&
  part.y + y + part.height >= area.y

/** More steps than these are drawn as marks, without names: each is some ten elements. As small as this, fewer are. */
const MOST_DRAWN = 400
const MOST_SMALL = 80
const SMALL = 0.4
/** So many steps are drawn more with each frame, so that none takes long. */
export const AT_ONCE = 40

export const areMarks = (count: number, scale: number): boolean => count > (scale < SMALL ? MOST_SMALL : MOST_DRAWN)

/** Of more arcs, the shortest are drawn as elements, all of them as lines in one picture. */
export const MOST_ARCS = 200

/** What is in an area, of parts whose graph is drawn at a place; of many, the smallest. */
export function within<Part extends Area>(parts: readonly Part[], area: Area, x: number, y: number, most = Infinity): Part[] {
  const found = parts.filter((one) => meets(one, area, x, y))
  return found.length <= most ? found : found.sort((a, b) => a.width + a.height - b.width - b.height).slice(0, most)
}

/** A graph that fits at this scale is shown whole at first. */
const LEGIBLE = 0.6
/** Room right of the last step for what stands above it, and above the first. */
export const BEYOND = 40
export const ABOVE = 8

export const sizeOf = ({ width, height }: Pick<Layout, 'width' | 'height'>): { width: number; height: number } => ({
  width: width + BEYOND,
  height: height + ABOVE,
})

/** A view that is wider is that of a large screen, on which all else is larger, too. */
const LARGE = 2000
const MOST_LARGE = 1.5

/** The scale at which all of a graph fits into a view, at most 1, or more on a large screen. */
export function fitting(graph: { width: number; height: number }, view: { width: number; height: number }): number {
  return Math.min(view.width > LARGE ? MOST_LARGE : 1, view.width / graph.width, view.height / graph.height)
}

/** The scale at which a graph is shown at first. */
export const firstScale = (fit: number): number => (fit >= LEGIBLE ? fit : 1)

const WORST = ['failed', 'running', 'waiting']

/** The step that one looks for first: one that has failed, else one that runs or waits. */
export function soughtIn(steps: readonly string[], states: ReadonlyMap<string, StepState> | undefined): string | undefined {
  for (const status of WORST) {
    const found = steps.find((step) => states?.get(step)?.status === status)
    if (found !== undefined) return found
  }
  return undefined
}

export const short = (count: number): string => (count < 10_000 ? count.toLocaleString('en') : `${Math.floor(count / 1000)}k`)

/** What stands above a step: how far its loops are, or how often it has run. */
export function countOf(state: StepState): string {
  if (state.iterations) return progress(state.iterations)
  return state.runs > 1 ? `×${state.runs}` : ''
}

export const BADGE_WIDTH = 34
const DIGIT = 6.7

/** Where the count above a step stands: at its right end, or from its left end on, behind the badges, if it is longer; over the button that opens it. */
export function countAt(count: string, width: number, badges: number, opens: boolean): { x: number; y: number; anchor: 'start' | 'end' } {
  const [left, y] = [badges * BADGE_WIDTH, opens ? -8 : -3]
  return count.length * DIGIT <= width - 4 - left ? { x: width - 4, y, anchor: 'end' } : { x: left, y, anchor: 'start' }
}
