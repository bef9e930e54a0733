import { expect, test } from 'vitest'
import { asTemplatesSee, concerns, isOpenToAll, sourceFacts, STATUSES } from './source'

const hook = { source: 'webhook', on: { webhook: { form: 'github', credential: 'hub' } }, address: '/api/v1/hooks/a' } as const
const ends = {
  source: 'execution',
  on: { execution: { path: 'shop/*', labels: { team: 'red', tier: 1 }, status: ['failed', 'cancelled'] } },
  address: null,
} as const

test('events can be chosen by each status, those that are held back by a rate too', () => {
  expect(STATUSES).toEqual(['waiting', 'started', 'ignored', 'repeated'])
})

test('a webhook is on its address, and says how its senders are known', () => {
  expect(concerns(hook)).toBe('/api/v1/hooks/a')
  expect(sourceFacts(hook)).toEqual(['verify github', 'credential hub'])
})

test('the ends of executions are told by what they must have', () => {
  expect(concerns(ends)).toBe('shop/* · team=red, tier=1 · failed, cancelled')
  expect(sourceFacts(ends)).toEqual(['path shop/*', 'labels team=red, tier=1', 'status failed, cancelled'])
})

test('a source that the page does not know is told all the same', () => {
  const other = { source: 'nats', on: { nats: { stream: 'ORDERS', subject: 'orders.>' } }, address: null }
  expect(concerns(other as never)).toBe('ORDERS · orders.>')
})

test('only a webhook that asks for nothing is open to all', () => {
  expect([hook, ends].map(isOpenToAll)).toEqual([false, false])
  expect(isOpenToAll({ on: { webhook: { form: 'none' } } })).toBe(true)
})

test.each([
  [{ body: '{"a": 1}' }, { body: '{"a": 1}', json: { a: 1 } }],
  [{ body: 'a=1' }, { body: 'a=1' }],
  [{ body: '9007199254740993' }, { body: '9007199254740993' }],
  [{ status: 'failed' }, { status: 'failed' }],
])('templates see %j as %j', (event, seen) => expect(asTemplatesSee(event)).toEqual(seen))
