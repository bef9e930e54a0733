import dagre from '@dagrejs/dagre'
import { INNER_PAD, NODE_HEIGHT, widthOf, type Layout, type Net } from './layout'

/** Places for the steps and lines for the arcs. A step whose playbook is open is as large as that. */
export function place(graph: Net): Layout {
  const net = new dagre.graphlib.Graph({ multigraph: true })
  net.setGraph({ rankdir: graph.down ? 'TB' : 'LR', nodesep: 20, ranksep: 44, marginx: 8, marginy: 8 })
  net.setDefaultEdgeLabel(() => ({}))
  const inner = new Map(Object.entries(graph.inner ?? {}).map(([step, one]) => [step, place(one)]))
  for (const step of graph.steps) net.setNode(step, sizeOf(step, inner.get(step)))
  graph.arcs.forEach((arc, index) => net.setEdge(arc.from, arc.to, {}, String(index)))
  dagre.layout(net)
  const { width = 0, height = 0 } = net.graph()
  return {
    width,
    height,
    steps: graph.steps.map((step) => {
      const { x, y, width, height } = net.node(step)
      return { step, x: x - width / 2, y: y - height / 2, width, height, inner: inner.get(step) ?? null }
    }),
    arcs: graph.arcs.map((arc, index) => {
      const { points } = net.edge(arc.from, arc.to, String(index)) as { points: Point[] }
      return { ...arc, path: line(points), ...around(points) }
    }),
  }
}

function sizeOf(step: string, inner: Layout | undefined): { width: number; height: number } {
  const width = widthOf(step)
  if (inner === undefined) return { width, height: NODE_HEIGHT }
  return { width: Math.max(width, inner.width + 2 * INNER_PAD), height: NODE_HEIGHT + inner.height + INNER_PAD }
}

interface Point {
  x: number
  y: number
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
