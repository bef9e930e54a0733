import { expect, test } from 'vitest'
import { find, keysOf, outlineOf, pathTo, placeAt } from './outline'

const TEXT = `metadata: {name: report, path: team/report}
workload:
  city: Rome
  limits: {rows: 10}
workflow:
  - step: start
    tool:
      - fetch:
          kind: http
          url: "{{ workload.city }}"
    next:
      arcs:
        - step: end
          when: '{{ ctx.go }}'
  - step: end
    tool: {kind: noop}
`

const at = (text: string): number => TEXT.indexOf(text)

test('a text is a tree of mappings, lists and scalars', () => {
  const outline = outlineOf(TEXT)
  expect(keysOf(outline)).toEqual(['metadata', 'workload', 'workflow'])
  expect(keysOf(find(outline, ['workload', 'limits']))).toEqual(['rows'])
  expect(find(outline, ['workflow', 0, 'tool', 0, 'fetch', 'url'])).toMatchObject({ text: '{{ workload.city }}' })
  expect(find(outline, ['workflow', 7, 'tool'])).toBeNull()
})

test('an offset leads to a key or a value', () => {
  const outline = outlineOf(TEXT)
  expect(pathTo(outline, at('kind: http') + 1)).toEqual({ path: ['workflow', 0, 'tool', 0, 'fetch', 'kind'], at: 'key' })
  expect(pathTo(outline, at('http') + 1)).toEqual({ path: ['workflow', 0, 'tool', 0, 'fetch', 'kind'], at: 'value' })
  expect(pathTo(outline, at('rows'))).toEqual({ path: ['workload', 'limits', 'rows'], at: 'key' })
})

const CASES: [string, (string | number)[], string, string][] = [
  ['work|', ['zz'], 'key', 'work'],
  ['metadata:\n  name: x\n  |', ['metadata', 'zz'], 'key', ''],
  ['workflow:\n  - step: a\n    to|\n', ['workflow', 0, 'zz'], 'key', 'to'],
  ['workflow:\n  - step: a\n    to|ol: {kind: noop}\n', ['workflow', 0, 'tool'], 'key', 'to'],
  ['workflow:\n  - step: a\n    tool:\n      kind: |\n  - step: b\n', ['workflow', 0, 'tool', 'kind'], 'value', ''],
  ['workflow:\n  - step: a\n    tool: {kind: no|}\n', ['workflow', 0, 'tool', 'kind'], 'value', 'no'],
  ['workflow:\n  - step: a\n    tool: {kind: noop, |}\n', ['workflow', 0, 'tool', 'zz'], 'key', ''],
  ['workflow:\n  - step: a\n    next:\n      arcs:\n        - |\n', ['workflow', 0, 'next', 'arcs', 0, 'zz'], 'key', ''],
  ['workflow:\n  - step: a\n    next:\n      arcs:\n        - step: |\n', ['workflow', 0, 'next', 'arcs', 0, 'step'], 'value', ''],
]

test.each(CASES)('%s', (marked, path, kind, word) => {
  const place = placeAt(marked.replace('|', ''), marked.indexOf('|'))
  expect([place.path, place.at, place.word]).toEqual([path, kind, word])
})

test.each(['', '{', '- [', 'a: b: c', '\t- x', '"'])('a text that is no YAML yet has places too: %s', (text) => {
  expect(placeAt(text, text.length)).toHaveProperty('path')
})
