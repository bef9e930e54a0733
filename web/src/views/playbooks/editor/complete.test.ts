import { expect, test } from 'vitest'
import { completion } from './complete'
import { outlineOf } from './outline'
import { aboutKey, type Schema } from './schema'

/** A small schema with what the playbook's own uses. */
const SCHEMA: Schema = {
  type: 'object',
  properties: {
    vars: { not: {}, doNotSuggest: true },
    kind: { allOf: [{ const: 'Playbook' }, { not: { type: 'null' } }] },
    workload: { description: 'What it is started with.', type: ['object', 'null'] },
    workflow: { allOf: [{ type: 'array', items: { $ref: '#/$defs/Step' } }, { not: { type: 'null' } }] },
  },
  $defs: {
    Step: {
      type: 'object',
      properties: {
        step: { type: 'string' },
        spec: { anyOf: [{ $ref: '#/$defs/Spec' }, { type: 'null' }] },
        tool: { anyOf: [{ $ref: '#/$defs/entry' }, { $ref: '#/$defs/tasks' }] },
        next: { properties: { arcs: { items: { properties: { step: {}, when: {} } } }, mode: { enum: ['exclusive', 'inclusive'] } } },
      },
    },
    Spec: { properties: { join: { description: 'Waits for others.', enum: ['all', 'any', null] }, emit: { description: 'Reserved for a later version.' } } },
    tasks: {
      type: 'array',
      items: {
        if: { type: 'object', minProperties: 1, maxProperties: 1, additionalProperties: { type: 'object', required: ['kind'] } },
        then: { additionalProperties: { $ref: '#/$defs/entry' } },
        else: { $ref: '#/$defs/entry' },
      },
    },
    entry: {
      properties: { kind: { enum: ['http', 'noop'] } },
      allOf: [
        { if: { properties: { kind: { const: 'http' } }, required: ['kind'] }, then: { properties: { url: { description: 'Where to.', type: 'string' }, secure: { type: 'boolean', default: true } } } },
        { if: { properties: { kind: { const: 'noop' } }, required: ['kind'] }, then: { properties: { args: {} } } },
      ],
    },
  },
}

const PLAYBOOK = `workload:
  city: Rome
  limits: {rows: 10}
keychain:
  - {name: shop, kind: credential}
workflow:
  - step: start
    loop: {in: [1], iterator: item}
    tool:
      - fetch:
          kind: http
          auth: ‸1
          spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {total: 1}}}}]}}
      - name: keep
        kind: noop
        args: {a: "{{ ‸2 }}", b: "{{ workload.‸3 }}", c: "{{ ctx.‸4 }}", d: "{{ fetch.‸5 }}", e: "{{ iter.‸6 }}"}
        spec:
          policy:
            rules:
              - else:
                  then: {do: jump, to: ‸7}
    next:
      arcs:
        - step: ‸8
        - step: end
          when: "{{ event.na‸9"
  - step: end
    tool: {kind: noop}
`

function offered(text: string): string[] {
  const found = completion(SCHEMA, text.replace('‸', ''), text.indexOf('‸'))
  return found?.options.map((one) => one.label) ?? []
}

const at = (mark: number): string[] => offered(PLAYBOOK.replace(/‸(\d)/g, (_, digit) => (Number(digit) === mark ? '‸' : '')))

test('keys are those that the schema allows there and that are not there yet', () => {
  expect(offered('‸')).toEqual(['kind', 'workload', 'workflow'])
  expect(offered('kind: Playbook\nwor‸')).toEqual(['workload', 'workflow'])
  expect(offered('workflow:\n  - ‸')).toEqual(['step', 'spec', 'tool', 'next'])
  expect(offered('workflow:\n  - step: a\n    spec:\n      ‸')).toEqual(['join'])
})

test('the kind of a task decides its keys, also under a label and in braces', () => {
  expect(offered('workflow:\n  - tool:\n      kind: http\n      ‸')).toEqual(['url', 'secure'])
  expect(offered('workflow:\n  - tool:\n      - get:\n          kind: http\n          ‸')).toEqual(['url', 'secure'])
  expect(offered('workflow:\n  - tool: {kind: noop, ‸}')).toEqual(['args'])
  expect(offered('workflow:\n  - tool: {‸}')).toEqual(['kind'])
})

test('words are those that the schema lists', () => {
  expect(offered('kind: ‸')).toEqual(['Playbook'])
  expect(offered('workflow:\n  - tool:\n      kind: h‸')).toEqual(['http', 'noop'])
  expect(offered('workflow:\n  - tool:\n      kind: http\n      secure: ‸')).toEqual(['true', 'false'])
  expect(offered('workflow:\n  - spec:\n      join: ‸')).toEqual(['all', 'any'])
})

test('names of the playbook stand where it refers to them', () => {
  expect(at(1)).toEqual(['shop'])
  expect(at(7)).toEqual(['fetch', 'keep'])
  expect(at(8)).toEqual(['start', 'end'])
})

test('in an expression there are namespaces, and the names that the playbook declares', () => {
  expect(at(2).slice(0, 6)).toEqual(['fetch', 'keep', 'start', 'end', 'city', 'limits'])
  expect(at(2)).toContain('workload')
  expect(at(3)).toEqual(['city', 'limits'])
  expect(at(4)).toEqual(['total'])
  expect(at(5)).toEqual(['data', 'outcome', 'results'])
  expect(at(6)).toEqual(['item', 'index', 'count', 'parent'])
  expect(at(9)).toEqual(['name', 'status', 'result', 'error', 'loop'])
  expect(offered('workload: {a: {b: 1}}\nx: "{{ workload.a.‸')).toEqual(['b'])
})

test('what is written so far is replaced, from its last dot on', () => {
  const text = 'workload: {city: 1}\nx: "{{ workload.ci'
  expect(completion(SCHEMA, text, text.length)?.from).toBe(text.length - 2)
})

test('a key is described with what it may be', () => {
  const document = outlineOf('workflow:\n  - spec: {join: all}\n    tool: {kind: http, url: x, secure: true}\n')
  expect(aboutKey(SCHEMA, document, ['workflow', 0, 'spec', 'join'])).toEqual(['Waits for others.', 'One of all, any.'])
  expect(aboutKey(SCHEMA, document, ['workflow', 0, 'tool', 'url'])).toEqual(['Where to.', 'Type: string.'])
  expect(aboutKey(SCHEMA, document, ['workflow', 0, 'tool', 'secure'])).toEqual(['One of true, false.', 'Default: true.'])
  expect(aboutKey(SCHEMA, document, ['nothing', 'here'])).toEqual([])
})
