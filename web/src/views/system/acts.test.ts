import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { createsToken, discards, requeues, revokes } from './acts'

test('acts on the system are lines of the shell too', () => {
  expect(cliLine(requeues('events-1'), '')).toBe('noetl-stream dead-letter requeue events-1')
  expect(cliLine(revokes('a1'), 'it leaked')).toBe("noetl-stream token revoke a1 --reason 'it leaked'")
  expect(curlLine(discards("a'b"), '', 'http://h')).toBe(
    `curl -X DELETE 'http://h/api/v1/dead-letters/a'\\''b' -H "Authorization: Bearer $TOKEN"`,
  )
})

test('a new token says what it may and until when, or that it lasts', () => {
  const act = createsToken({ name: 'ci', role: 'operator', paths: ['team/a', 'team/b'], days: 30 }, 0)
  expect(cliLine(act, '')).toBe('noetl-stream token create ci --role operator --paths team/a,team/b --expires 30d')
  expect(act.given).toEqual({ name: 'ci', role: 'operator', paths: ['team/a', 'team/b'], expires: new Date('1970-01-31') })
  const lasting = createsToken({ name: 'ci', role: 'admin', paths: [], days: 0 }, 0)
  expect(lasting.given).toEqual({ name: 'ci', role: 'admin', paths: [], expires: 'never' })
  expect(cliLine(lasting, '')).toBe('noetl-stream token create ci --role admin --expires never')
})
