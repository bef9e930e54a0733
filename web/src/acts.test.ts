import { expect, test } from 'vitest'
import { asks, cancelsNow, cliLine, curlLine, injects, patches, patchesInside, reruns, signals, starts } from './acts'

test('an act is a line of the shell too, quoted so that nothing in it is obeyed', () => {
  const act = signals('01', "rel'ease; rm -rf $HOME", { by: 'ada' })
  expect(cliLine(act, '')).toBe(
    `noetl-stream execution signal 01 --payload '{"by":"ada"}' 'rel'\\''ease; rm -rf $HOME'`,
  )
  expect(curlLine(act, '', 'http://h')).toContain("/api/v1/executions/01/signals/rel'\\''ease%3B%20rm%20-rf%20%24HOME")
})

test('a reason goes along', () => {
  const rerun = reruns('01', { step: 'pay', run: null, ctx: {}, args: null })
  expect(cliLine(rerun, '')).toBe('noetl-stream execution rerun 01 pay')
  expect(curlLine(rerun, '', 'http://h')).toContain(`-d '{"step":"pay"}'`)
  expect(cliLine(asks('01', 'cancel'), 'no longer wanted')).toBe(
    "noetl-stream execution cancel 01 --reason 'no longer wanted'",
  )
  expect(cliLine(signals('01', '-x', null), 'why')).toBe('noetl-stream execution signal 01 --reason why -- -x')
  expect(curlLine(patches('01', { a: 1 }), 'ü', 'http://h')).toBe(
    `curl -X PATCH http://h/api/v1/executions/01/ctx -H 'X-Reason: %C3%BC' -H 'Content-Type: application/json' -d '{"a":1}' -H "Authorization: Bearer $TOKEN"`,
  )
})

test('a cancel at once says so, with its reason', () => {
  expect(cliLine(cancelsNow('01'), 'enough')).toBe('noetl-stream execution cancel 01 --now --reason enough')
  expect(cancelsNow('01')).toMatchObject({ verb: 'cancelExecution', given: { now: true } })
})

test('a text that is JSON stays a text on the command line', () => {
  const act = patches('01', { answer: '42', note: 'a b', open: false })
  expect(cliLine(act, '')).toBe(`noetl-stream execution patch 01 --set 'answer="42"' --set 'note=a b' --set open=false`)
})

test('a value inside a key is merged', () => {
  const act = patchesInside('01', ['order', 'approved'], true)
  expect(cliLine(act, 'ok')).toBe('noetl-stream execution patch 01 --merge --set order.approved=true --reason ok')
  expect(curlLine(act, '', 'http://h')).toContain(`-H 'Content-Type: application/merge-patch+json' -d '{"order":{"approved":true}}'`)
  expect(cliLine(patchesInside('01', ['a.b', 'c'], 1), '')).toBe(
    `printf %s '{"a.b":{"c":1}}' | noetl-stream execution patch 01 --merge --file /dev/stdin`,
  )
})

test('a rerun says what it changes', () => {
  const act = reruns('01', { step: 'pay', run: 'r1', ctx: { decision: 'refused' }, args: { amount: 5 } })
  expect(act.given).toEqual({ execution_id: '01', step: 'pay', step_run_id: 'r1', ctx: { decision: 'refused' }, args: { amount: 5 } })
  expect(cliLine(act, '')).toBe(
    'noetl-stream execution rerun 01 pay --step-run r1 --ctx decision=refused --set amount=5',
  )
})

test('no arguments at all are not the same as those there were', () => {
  const act = reruns('01', { step: 'pay', run: null, ctx: {}, args: {} })
  expect(curlLine(act, '', 'http://h')).toContain(`-d '{"step":"pay","args":{}}'`)
  expect(cliLine(act, '')).toBe("printf %s '{}' | noetl-stream execution rerun 01 pay --args /dev/stdin")
})

test('a key that the command line would take apart goes another way, or none', () => {
  expect(cliLine(patches('01', { 'a.b': "it's" }), 'why')).toBe(
    `printf %s '{"a.b":"it'\\''s"}' | noetl-stream execution patch 01 --file /dev/stdin --reason why`,
  )
  expect(cliLine(injects('01', 'pay', { 'a=b': 1 }), '')).toBeNull()
  expect(cliLine(injects('01', 'pay', { by: 'ada' }), '')).toBe('noetl-stream execution token 01 pay --set by=ada')
})

test('a start is the same as a line of the shell', () => {
  const act = starts('team/report', '1.0', { city: "L'Aquila", rows: 2, code: '007', size: '2' })
  expect(cliLine(act, '')).toBe(
    `noetl-stream execution start team/report@1.0 --set 'city=L'\\''Aquila' --set rows=2 --set code=007 --set 'size="2"'`,
  )
  expect(curlLine(act, '', 'http://h')).toContain(`-d '{"path":"team/report","version":"1.0","workload":{`)
  expect(cliLine(starts('p', '1', { 'a.b': 1 }), '')).toBe(
    `printf %s '{"a.b":1}' | noetl-stream execution start p@1 --workload /dev/stdin`,
  )
  const lowest = starts('p', '1', { a: 1 }, 0)
  expect(cliLine(lowest, '')).toBe('noetl-stream execution start p@1 --priority 0 --set a=1')
  expect(lowest.given).toEqual({ path: 'p', version: '1', workload: { a: 1 }, priority: 0 })
})
