import { expect, test } from 'vitest'
import { takesMore } from '../../fields/schema'
import { valueFault } from '../../fields/values'
import { inputFields } from './workload'

const WORKLOAD = { city: 'Rome', note: 'a\nb', rows: 10, dry: false, tags: ['a'], since: null }

test('each input has a field of the type of its default', () => {
  expect(inputFields({ workload: WORKLOAD }).map(({ key, kind, text }) => [key, kind, text])).toEqual([
    ['city', 'text', 'Rome'],
    ['note', 'text', 'a\nb'],
    ['rows', 'number', '10'],
    ['dry', 'yes or no', 'false'],
    ['tags', 'JSON', '[\n  "a"\n]'],
    ['since', 'JSON', 'null'],
  ])
})

const SCHEMA = {
  required: ['order', 'city'],
  properties: {
    order: { type: 'string', description: 'Its number.', pattern: '^[0-9]+$' },
    city: { enum: ['Rome', 'Oslo'] },
    rows: { type: 'integer', minimum: 1, maximum: 100 },
    since: { type: 'string', maxLength: 10 },
    size: { enum: [1, 'all'] },
    limit: { type: ['number', 'null'] },
  },
}

test('an input is typed as the playbook declares it, with its default', () => {
  const fields = inputFields({ workload: { ...WORKLOAD, limit: null }, workload_schema: SCHEMA })
  expect(fields.map((one) => one.key)).toEqual(['order', 'city', 'rows', 'since', 'size', 'limit', 'note', 'dry', 'tags'])
  expect(fields.slice(0, 6)).toMatchObject([
    { kinds: ['text'], text: '', empty: 'wrong', note: 'Its number. Matches ^[0-9]+$' },
    { kinds: ['text'], text: 'Rome', empty: 'value', choices: ['Rome', 'Oslo'], isClosed: true },
    { kinds: ['number'], text: '10', note: '1 to 100.' },
    { kinds: ['text'], text: '', empty: 'wrong', note: 'At most 10 characters.' }, // null will not do
    { kinds: ['JSON'], text: '', empty: 'left out', choices: ['1', '"all"'], isClosed: true },
    { kinds: ['number', 'JSON'], kind: 'JSON', text: 'null', empty: 'value' },
  ])
  expect(fields.map(valueFault).filter((fault) => fault !== '')).toHaveLength(2)
})

test('other keys are offered unless the playbook refuses them', () => {
  expect([undefined, SCHEMA, { additionalProperties: true }].map(takesMore)).toEqual([true, true, true])
  expect(takesMore({ additionalProperties: false })).toBe(false)
})
