import { expect, test } from 'vitest'
import type { Check, Partition, Pool } from 'noetl-stream-client'
import { checksOf, isAlarm, partOf, worstFirst } from './alarms'

const pool = (name: string, some: Partial<Pool>): Pool => ({ pool: name, workers: 1, slots: 4, busy: 0, queued: 0, running: 0, again: 0, oldest: null, ...some })
const partition = (some: Partial<Partition>): Partition => ({ partition: 0, owner: 'a', epoch: 1, live: true, folded: 9, behind: 0, ...some })
const check = (name: string, verdict: Check['verdict']): Check => ({ check: name, verdict, says: '' })

test('what is wrong comes first, and else the order stays', () => {
  const checks = [check('a', 'ok'), check('b', 'warning'), check('c', 'skipped'), check('d', 'wrong'), check('e', 'ok')]
  expect(worstFirst(checks).map((one) => one.check)).toEqual(['d', 'b', 'c', 'a', 'e'])
  expect(checks.filter(isAlarm)).toHaveLength(2)
})

test('pools and partitions that work are no alarm', () => {
  expect(checksOf([pool('default', { queued: 3 }), pool('idle', { workers: 0 })], [partition({})]).filter(isAlarm)).toEqual([])
})

test('commands without a worker, partitions without a server, and what is far behind are alarms that say what mends them', () => {
  const found = checksOf([pool('gpu', { workers: 0, queued: 7 })], [partition({ live: false, behind: 20_000 })])
  expect(found.map((one) => [one.check, one.verdict, one.mend])).toEqual([
    ['pools', 'wrong', 'noetl-stream worker --pool gpu'],
    ['partitions', 'wrong', 'noetl-stream server'],
    ['fold', 'warning', 'add a server, if this does not pass'],
  ])
  expect(found[0]?.says).toContain('7 in gpu')
})

test('a check leads to the part that shows more of it', () => {
  expect([partOf('dead-letters'), partOf('fold'), partOf('clocks')]).toEqual(['dead-letters', 'partitions', undefined])
})
