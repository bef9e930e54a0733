import { expect, test } from 'vitest'
import type { DataReference, DataUse } from 'noetl-stream-client'
import { lineageOf, MOST_DRAWN } from './lineage'

const file = (key: string, more: Partial<DataReference> = {}): DataReference =>
  ({ key, size: 10, checksum: '', name: 'a.csv', ...more }) as DataReference
const use = (step: string, task: string, read: DataReference[], written: DataReference[]): DataUse =>
  ({ position: 1, at: '', step, step_run_id: '', iteration: [], task, attempt: 1, read, written })

test('a file leads from the task that has written it to those that have read it', () => {
  const { net, marks, tasks } = lineageOf([use('fetch', 'fetch', [], [file('1')]), use('load', 'csv', [file('1')], [file('2', { name: '', columns: [], rows: 5 })])])
  expect(net.arcs.map(({ from, to }) => [from, to])).toEqual([['fetch', 'a.csv'], ['a.csv', 'load.csv'], ['load.csv', 'table']])
  expect([...marks.steps]).toEqual([['a.csv', 'file'], ['table', 'table'], ['fetch', 'task'], ['load.csv', 'task']])
  expect(tasks.map(({ name, attempts }) => [name, attempts])).toEqual([['fetch', 1], ['load.csv', 1]])
})

test('files of one name are told apart, and many attempts of a task are one', () => {
  const { net, tasks } = lineageOf([use('each', 'put', [file('0')], [file('1')]), use('each', 'put', [file('0')], [file('2')])])
  expect(net.steps).toEqual(['a.csv', 'each.put', 'a.csv (2)', 'a.csv (3)'])
  expect(tasks).toEqual([{ name: 'each.put', attempts: 2, read: ['a.csv'], written: ['a.csv (2)', 'a.csv (3)'] }])
})

test('of many files as many are drawn as can be looked at', () => {
  const { net, left } = lineageOf([use('split', 'split', [], Array.from({ length: 1000 }, (_, at) => file(String(at))))])
  expect([net.steps.length, left]).toEqual([MOST_DRAWN, 1001 - MOST_DRAWN])
})

test('data elsewhere is what a task has read or written, too', () => {
  const datasets = [{ namespace: 'https://a:443', name: '/b.csv' }, { namespace: 'postgres://c:5432', name: 'd.e.f', written: true }]
  const { net, marks } = lineageOf([{ ...use('fetch', 'fetch', [], []), datasets }])
  expect(net.arcs.map(({ from, to }) => [from, to])).toEqual([['https://a:443/b.csv', 'fetch'], ['fetch', 'postgres://c:5432/d.e.f']])
  expect(marks.steps.get('https://a:443/b.csv')).toBe('elsewhere')
})
