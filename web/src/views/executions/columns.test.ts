import { expect, test } from 'vitest'
import type { ListedExecution } from 'noetl-stream-client'
import { cellOf, FIRST, gridOf, offered, withColumn } from './columns'

const REFUND = {
  key: 'order=A-1',
  labels: { team: 'shop', tier: 1 },
  inputs: { 'order.id': 'A-1', rush: true },
  failed_step: null,
  workers: ['w1', 'w2'],
} as unknown as ListedExecution

test('a label or an input of any execution that is shown may be a column', () => {
  expect(offered([REFUND], ['label:gone'])).toEqual([
    ...['Execution', 'Key', 'Labels', 'Failed step', 'Workers', 'Due', 'Started', 'Duration'],
    ...['label:team', 'label:tier', 'input:order.id', 'input:rush', 'label:gone'],
  ])
})

test('a cell shows a value as text, and nothing where there is none', () => {
  const shown = ['Key', 'Failed step', 'Workers', 'label:tier', 'input:order.id', 'input:rush', 'label:none'].map((one) => cellOf(REFUND, one))
  expect(shown).toEqual(['order=A-1', '', 'w1, w2', '1', 'A-1', 'true', ''])
})

test('a column is chosen and taken out again, times last', () => {
  const more = withColumn(withColumn(FIRST, 'input:order.id'), 'Key')
  expect(more).toEqual(['Execution', 'Key', 'Labels', 'input:order.id', 'Started', 'Duration'])
  expect(withColumn(withColumn(more, 'Key'), 'input:order.id')).toEqual(FIRST)
  expect(gridOf(['Key', 'Started'])).toBe('136px minmax(160px, 2fr) minmax(80px, 1fr) 112px')
})
