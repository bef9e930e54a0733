import { expect, test } from 'vitest'
import { asks, cliLine, curlLine, patches, reruns, signals } from './acts'

test('an act is a line of the shell too, quoted so that nothing in it is obeyed', () => {
  const act = signals('01', "rel'ease; rm -rf $HOME", { by: 'ada' })
  expect(cliLine(act, '')).toBe(
    `noetl-stream execution signal 01 'rel'\\''ease; rm -rf $HOME' --payload '{"by":"ada"}'`,
  )
  expect(act.path).toBe("/executions/01/signals/rel'ease%3B%20rm%20-rf%20%24HOME")
})

test('a reason goes along', () => {
  expect(cliLine(reruns('01', 'pay'), '')).toBe('noetl-stream execution rerun 01 pay')
  expect(cliLine(asks('01', 'cancel'), 'no longer wanted')).toBe(
    "noetl-stream execution cancel 01 --reason 'no longer wanted'",
  )
  expect(curlLine(patches('01', { a: 1 }), 'ü', 'http://h')).toBe(
    `curl -X PATCH http://h/api/v1/executions/01/ctx -H 'X-Reason: %C3%BC' -H 'Content-Type: application/json' -d '{"a":1}' -H "Authorization: Bearer $TOKEN"`,
  )
})
