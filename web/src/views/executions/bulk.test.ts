import { expect, test } from 'vitest'
import { cliLine } from '../../acts'
import { ALL } from '../../query'
import { bulkAct, reasons, selected, toggled, withRange } from './bulk'


test('what is sent for a filter has the conditions that it has, and no others', () => {
  expect(selected({ filter: { ...ALL, status: ['failed'], error: 'timed out' } })).toEqual({
    status: ['failed'],
    error: 'timed out',
    limit: 1000,
  })
  expect(selected({ ids: ['a', 'b'] })).toEqual({ ids: ['a', 'b'] })
})

test('the line of the shell selects the same executions', () => {
  const filter = { ...ALL, status: ['failed' as const, 'running' as const], path: 'team', label: ['env=prod eu'], started_before: '2026-01-01T00:00:00.000Z' }
  expect(cliLine(bulkAct('cancel', { filter }, ''), 'ordered twice')).toBe(
    "noetl-stream execution cancel --status failed --status running --path team --label 'env=prod eu' --until 2026-01-01T00:00:00.000Z --reason 'ordered twice'",
  )
  expect(cliLine(bulkAct('pause', { ids: ['a', 'b'] }, ''), '')).toBe('noetl-stream execution pause a b')
})

test('a rerun of several names its step, in the line of the shell too', () => {
  const act = bulkAct('rerun', { ids: ['a', 'b'] }, 'pay out')
  expect(act).toMatchObject({ verb: 'rerunExecutions', given: { ids: ['a', 'b'], step: 'pay out' } })
  expect(cliLine(act, 'mended')).toBe("noetl-stream execution rerun a b --from 'pay out' --reason mended")
})

test('reasons are counted, the most frequent one first', () => {
  const item = (detail: string) => ({ execution_id: 'a', outcome: 'skipped' as const, detail })
  expect(reasons([item('it is paused'), item('it has ended'), item('it has ended')])).toEqual([
    { detail: 'it has ended', count: 2 },
    { detail: 'it is paused', count: 1 },
  ])
})

test('a mark is set and taken away, and a range is marked whichever end comes first', () => {
  expect([...toggled(toggled(new Set(['a']), 'b'), 'a')]).toEqual(['b'])
  const ids = ['a', 'b', 'c', 'd']
  expect([...withRange(new Set(['d']), ids, 2, 1)]).toEqual(['d', 'b', 'c'])
  expect([...withRange(new Set(), ids, -1, 0)]).toEqual(['a'])
})
