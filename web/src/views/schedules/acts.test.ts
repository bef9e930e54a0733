import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { backfills, rangeOf, runsNow } from './acts'

test('a schedule that is due now has the word of the shell for it', () => {
  expect(curlLine(runsNow('team/nightly'), '', 'http://h')).toContain('http://h/api/v1/schedules/team%2Fnightly/trigger')
  expect(cliLine(runsNow('team/nightly'), '')).toBe('noetl-stream schedule run-now team/nightly')
})

test('a backfill sends its range in UTC', () => {
  const range = rangeOf('2026-01-01T00:00Z', '2026-01-02T00:00Z')
  expect(range).toEqual({ from: '2026-01-01T00:00:00.000Z', before: '2026-01-02T00:00:00.000Z' })
  const act = range && backfills('a', range, 'allow')
  expect(act?.given).toEqual({ path: 'a', ...range, overlap: 'allow' })
  expect(act && cliLine(act, '')).toBe(
    'noetl-stream schedule backfill a --from 2026-01-01T00:00:00.000Z --until 2026-01-01T23:59:59.000Z --overlap allow',
  )
})

test.each([
  ['', '2026-01-02T00:00'],
  ['2026-01-02T00:00', ''],
  ['2026-01-02T00:00', '2026-01-02T00:00'],
  ['2026-01-03T00:00', '2026-01-02T00:00'],
])('a range from %j to %j is none', (from, before) => expect(rangeOf(from, before)).toBeNull())
