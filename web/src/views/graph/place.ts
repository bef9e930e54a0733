import dagre from '@dagrejs/dagre'
import { INNER_PAD, NODE_HEIGHT, widthOf, type Drawn, type Layout, type Net, type Placed, type Point } from './layout'

/** A graph that is longer than so many times its height is broken into lines, which make a picture of about that shape. */
const LONGEST = 24
const SHAPE = 6
const RANK_GAP = 44
const LINE_GAP = 36
const LINE_PAD = 32

/** Places for the steps and lines for the arcs, in several lines if it is very long. */
export function placeInLines(graph: Net): Layout {
  const found = place(graph)
  return graph.down || found.width <= LONGEST * Math.max(found.height, 4 * NODE_HEIGHT) ? found : broken(found)
}

/** The same steps in lines one below the other, as text is. */
function broken({ steps, arcs }: Layout): Layout {
  const long = Math.sqrt(SHAPE * steps.reduce((sum, one) => sum + (one.width + RANK_GAP) * (one.height + LINE_GAP), 0))
  const lineOf = (one: Placed): number => Math.floor((one.x + one.width / 2) / long)
  const moves = movesOf(steps, lineOf)
  const moved = <At extends Point>(at: At, by: Point | undefined): At => ({ ...at, x: at.x + (by?.x ?? 0), y: at.y + (by?.y ?? 0) })
  const placed = new Map(steps.map((one) => [one.step, { line: lineOf(one), at: moved(one, moves.get(lineOf(one))) }]))
  const lines = arcs.map((arc): Drawn => {
    const [from, to] = [placed.get(arc.from), placed.get(arc.to)]
    if (!from || !to) return arc
    const above = moves.get(Math.max(from.line, to.line))?.top ?? 0
    const points = from.line === to.line ? arc.points.map((one) => moved(one, moves.get(from.line))) : between(from.at, to.at, above - LINE_GAP / 2)
    return { ...arc, points, path: line(points), ...around(points) }
  })
  const all = [...placed.values()].map(({ at }) => at)
  return {
    width: Math.max(...all.map((one) => one.x + one.width)) + LINE_PAD,
    height: Math.max(...all.map((one) => one.y + one.height)) + INNER_PAD,
    steps: all,
    arcs: lines,
  }
}

/** How far the steps of each line are moved, and where the line then begins: one below the other. */
function movesOf(steps: readonly Placed[], lineOf: (one: Placed) => number): Map<number, Point & { top: number }> {
  const lines: Placed[][] = []
  for (const one of steps) (lines[lineOf(one)] ??= []).push(one)
  let top = INNER_PAD
  const moves = new Map<number, Point & { top: number }>()
  lines.forEach((of, number) => {
    const first = Math.min(...of.map((one) => one.y))
    moves.set(number, { x: LINE_PAD - Math.min(...of.map((one) => one.x)), y: top - first, top })
    top += Math.max(...of.map((one) => one.y + one.height)) - first + LINE_GAP
  })
  return moves
}

/** From the right side of a step to the left of one in another line, between the lines. */
function between(from: Placed, to: Placed, y: number): Point[] {
  const [right, left] = [from.x + from.width, to.x]
  const [leaves, comes] = [from.y + from.height / 2, to.y + to.height / 2]
  return [
    { x: right, y: leaves },
    { x: right + LINE_PAD / 2, y: leaves },
    { x: right + LINE_PAD / 2, y },
    { x: left - LINE_PAD / 2, y },
    { x: left - LINE_PAD / 2, y: comes },
    { x: left, y: comes },
  ]
}

/** Places for the steps and lines for the arcs. A step whose playbook is open is as large as that. */
function place(graph: Net): Layout {
  const net = new dagre.graphlib.Graph({ multigraph: true })
  net.setGraph({ rankdir: graph.down ? 'TB' : 'LR', nodesep: 20, ranksep: RANK_GAP, marginx: 8, marginy: 8 })
  net.setDefaultEdgeLabel(() => ({}))
  const inner = new Map(Object.entries(graph.inner ?? {}).map(([step, one]) => [step, place(one)]))
  for (const step of graph.steps) net.setNode(step, sizeOf(step, inner.get(step)))
  graph.arcs.forEach((arc, index) => net.setEdge(arc.from, arc.to, {}, String(index)))
  const nodes = new Map(graph.nodes?.map((one) => [one.step, one]))
  const last = graph.steps.find((step) => nodes.get(step)?.is_finally)
  if (last !== undefined) for (const step of endsOf(graph)) if (step !== last) net.setEdge(step, last, {}, LAST)
  dagre.layout(net)
  const { width = 0, height = 0 } = net.graph()
  return {
    width,
    height,
    steps: graph.steps.map((step) => {
      const { x, y, width, height } = net.node(step)
      return { step, x: x - width / 2, y: y - height / 2, width, height, inner: inner.get(step) ?? null, last: step === last, undoneBy: nodes.get(step)?.undone_by ?? [] }
    }),
    arcs: graph.arcs.map((arc, index) => {
      const { points } = net.edge(arc.from, arc.to, String(index)) as { points: Point[] }
      return { ...arc, points, path: line(points), ...around(points) }
    }),
  }
}

/** What places the step of `finally` behind all others; it is not drawn. */
const LAST = 'last'

/** The steps that lead nowhere. */
function endsOf({ steps, arcs }: Net): string[] {
  const leading = new Set(arcs.map((arc) => arc.from))
  return steps.filter((step) => !leading.has(step))
}

function sizeOf(step: string, inner: Layout | undefined): { width: number; height: number } {
  const width = widthOf(step)
  if (inner === undefined) return { width, height: NODE_HEIGHT }
  return { width: Math.max(width, inner.width + 2 * INNER_PAD), height: NODE_HEIGHT + inner.height + INNER_PAD }
}

/** The rectangle that holds points, and so a line that is bent by them. */
function around(points: readonly Point[]): { x: number; y: number; width: number; height: number } {
  const [xs, ys] = [points.map((one) => one.x), points.map((one) => one.y)]
  const [x, y] = [Math.min(...xs), Math.min(...ys)]
  return { x, y, width: Math.max(...xs) - x, height: Math.max(...ys) - y }
}

/** A smooth line through points: to the middle of each two, bent at the point between. */
export function line(points: readonly Point[]): string {
  const [first, ...rest] = points
  const last = rest.pop()
  if (first === undefined || last === undefined) return ''
  const at = (x: number, y: number): string => `${Math.round(x * 10) / 10},${Math.round(y * 10) / 10}`
  let path = `M${at(first.x, first.y)}`
  rest.forEach((point, index) => {
    const next = rest[index + 1] ?? last
    path += `Q${at(point.x, point.y)} ${index === rest.length - 1 ? at(last.x, last.y) : at((point.x + next.x) / 2, (point.y + next.y) / 2)}`
  })
  return rest.length === 0 ? `${path}L${at(last.x, last.y)}` : path
}
