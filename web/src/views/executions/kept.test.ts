import { beforeEach, expect, test, vi } from 'vitest'
import { FIRST } from './columns'
import { forgetView, keepColumns, keptColumns, savedViews, saveView } from './kept'

beforeEach(() => {
  const kept = new Map<string, string>()
  vi.stubGlobal('localStorage', {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => kept.set(key, value),
  })
})

const REFUNDS = { name: 'refunds', query: 'path:shop/refund status:failed', group: '', columns: ['Key', 'input:order.id'] }

test('a view is saved under its name, replaced and forgotten', () => {
  saveView(REFUNDS)
  saveView({ ...REFUNDS, name: 'all', query: '' })
  expect(saveView({ ...REFUNDS, group: 'path' }).map((one) => [one.name, one.group])).toEqual([
    ['all', ''],
    ['refunds', 'path'],
  ])
  expect(forgetView('all')).toEqual(savedViews())
  expect(savedViews()).toEqual([{ ...REFUNDS, group: 'path' }])
})

test('chosen columns are kept', () => {
  expect(keptColumns()).toEqual(FIRST)
  keepColumns(['Key', 'Started'])
  expect(keptColumns()).toEqual(['Key', 'Started'])
})

test.each(['{', '7', '[7]', '[{"name":"x"}]'])('what is kept and cannot be read, %s, counts as nothing', (text) => {
  localStorage.setItem('noetl_views', text)
  localStorage.setItem('noetl_columns', text === '[{"name":"x"}]' ? text : `${text}`)
  expect([savedViews(), keptColumns()]).toEqual([[], FIRST])
})
