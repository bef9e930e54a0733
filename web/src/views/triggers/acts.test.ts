import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { pauses, resends } from './acts'

test('acts on a trigger are lines of the shell too', () => {
  expect(cliLine(pauses('team/push'), 'too many')).toBe("noetl-stream trigger pause team/push --reason 'too many'")
  expect(cliLine(resends('team/push', 7), '')).toBe('noetl-stream trigger resend team/push 7')
  expect(curlLine(resends('team/push', 7), '', 'http://h')).toBe(
    'curl -X POST http://h/api/v1/triggers/team%2Fpush/events/7/resend -H "Authorization: Bearer $TOKEN"',
  )
})
