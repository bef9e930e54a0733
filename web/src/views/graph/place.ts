import dagre from '@dagrejs/dagre'
import { NODE_HEIGHT, widthOf, type Layout, type Net } from './layout'

/** Places for the steps and lines for the arcs, from left to right. */
export function place(graph: Net): Layout {
  const net = new dagre.graphlib.Graph({ multigraph: true })
  net.setGraph({ rankdir: 'LR', nodesep: 20, ranksep: 44, marginx: 8, marginy: 8 })
  net.setDefaultEdgeLabel(() => ({}))
  for (const step of graph.steps) net.setNode(step, { width: widthOf(step), height: NODE_HEIGHT })
  graph.arcs.forEach((arc, index) => net.setEdge(arc.from, arc.to, {}, String(index)))
  dagre.layout(net)
  const { width = 0, height = 0 } = net.graph()
  return {
    width,
    height,
    steps: graph.steps.map((step) => ({ step, x: net.node(step).x, y: net.node(step).y })),
    arcs: graph.arcs.map((arc, index) => {
      const { points } = net.edge(arc.from, arc.to, String(index)) as { points: Point[] }
      return { ...arc, path: line(points) }
    }),
  }
}

interface Point {
  x: number
  y: number
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
