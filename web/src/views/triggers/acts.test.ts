import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { resends } from './acts'

test('an event that is sent again is a line of the shell too', () => {
  expect(cliLine(resends('team/push', 7), '')).toBe('noetl-stream trigger resend team/push 7')
  expect(curlLine(resends('team/push', 7), '', 'http://h')).toBe(
    'curl -X POST http://h/api/v1/triggers/team%2Fpush/events/7/resend -H "Authorization: Bearer $TOKEN"',
  )
})
