import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { asks } from './acts'

test.each(['schedule', 'trigger'] as const)('acts on a %s are lines of the shell too', (noun) => {
  expect(cliLine(asks(noun, 'team/one', 'pause'), 'no data')).toBe(`noetl-stream ${noun} pause team/one --reason 'no data'`)
  expect(cliLine(asks(noun, 'team/one', 'delete'), '')).toBe(`noetl-stream ${noun} delete team/one`)
  expect(curlLine(asks(noun, 'team/one', 'delete'), '', 'http://h')).toBe(
    `curl -X DELETE http://h/api/v1/${noun}s/team%2Fone -H "Authorization: Bearer $TOKEN"`,
  )
})
