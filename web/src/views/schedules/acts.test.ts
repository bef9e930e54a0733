import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { backfills, deletes, pauses, rangeOf } from './acts'

test('acts on a schedule are lines of the shell too', () => {
  expect(cliLine(pauses('team/nightly'), 'no data')).toBe("noetl-stream schedule pause team/nightly --reason 'no data'")
  expect(curlLine(deletes('team/nightly'), '', 'http://h')).toBe(
    'curl -X DELETE http://h/api/v1/schedules/team%2Fnightly -H "Authorization: Bearer $TOKEN"',
  )
})

test('a backfill sends its range in UTC', () => {
  const range = rangeOf('2026-01-01T00:00Z', '2026-01-02T00:00Z')
  expect(range).toEqual({ from: '2026-01-01T00:00:00.000Z', before: '2026-01-02T00:00:00.000Z' })
  const act = range && backfills('a', range, 'allow')
  expect(act?.body).toEqual({ ...range, overlap: 'allow' })
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
