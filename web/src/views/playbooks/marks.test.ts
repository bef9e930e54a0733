import { expect, test } from 'vitest'
import type { Arc, Graph } from 'noetl-stream-client'
import { marked } from './marks'

const arc = (from: string, to: string, index: number, when: string | null = null): Arc => ({
  from, to, when, index, kind: 'always', is_else: false, line: 1,
})
const graph = (steps: string[], arcs: Arc[]): Graph => ({ steps, arcs, path: 'p', digest: 'd', nodes: [] })

test('a graph has the steps and arcs of both versions, marked', () => {
  const before = graph(['a', 'b', 'old'], [arc('a', 'b', 0, '{{ x }}'), arc('a', 'old', 1)])
  const after = graph(['a', 'b', 'c'], [arc('a', 'b', 0, '{{ y }}'), arc('a', 'c', 1), arc('b', 'c', 0)])
  const found = marked(before, after, {
    steps: { added: ['c'], removed: ['old'], changed: ['a'] },
    arcs: [
      { from: 'a', to: 'b', change: 'changed', when: '{{ y }}', was: '{{ x }}' },
      { from: 'a', to: 'c', change: 'added', when: null, was: null },
      { from: 'a', to: 'old', change: 'removed', when: null, was: null },
    ],
  })
  expect(found.graph.steps).toEqual(['a', 'b', 'c', 'old'])
  expect(Object.fromEntries(found.steps)).toEqual({ a: 'changed', c: 'added', old: 'removed' })
  expect([...found.arcs.values()]).toEqual(['changed', 'added', 'removed'])
  expect(found.graph.arcs.map((one) => one.to)).toEqual(['b', 'c', 'c', 'old'])
})

test('an arc to a step that neither version has is not drawn', () => {
  const diff = { steps: { added: [], removed: [], changed: [] }, arcs: [{ from: 'a', to: 'x', change: 'removed' as const, when: null, was: null }] }
  expect(marked(graph(['a'], []), graph(['a'], []), diff).graph.arcs).toEqual([])
})
