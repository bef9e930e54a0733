import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { deletes, pauses } from './acts'

test.each(['schedule', 'trigger'] as const)('acts on a %s are lines of the shell too', (noun) => {
  expect(cliLine(pauses(noun, 'team/one'), 'no data')).toBe(`noetl-stream ${noun} pause team/one --reason 'no data'`)
  expect(cliLine(deletes(noun, 'team/one'), '')).toBe(`noetl-stream ${noun} delete team/one`)
  expect(curlLine(deletes(noun, 'team/one'), '', 'http://h')).toBe(
    `curl -X DELETE http://h/api/v1/${noun}s/team%2Fone -H "Authorization: Bearer $TOKEN"`,
  )
})
