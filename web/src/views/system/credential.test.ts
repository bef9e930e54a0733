import { expect, test } from 'vitest'
import { cliLine, curlLine } from '../../acts'
import { isEmpty, isOpen, storesCredential, typedFor, valueOf } from './credential'

test('the value of a credential stands in no line of the shell', () => {
  const value = { user: 'ann', password: 'hidden-word' }
  const act = storesCredential({ name: 'warehouse', kind: 'postgres', description: 'Orders.', tags: ['sales'], value })
  expect(act.given).toEqual({ name: 'warehouse', value, kind: 'postgres', description: 'Orders.', tags: ['sales'] })
  expect(cliLine(act, 'it leaked')).toBe(
    "noetl-stream credential set warehouse --kind postgres --description Orders. --tag sales --file value.txt --reason 'it leaked'",
  )
  expect(curlLine(act, '', 'http://h')).toBe(
    `curl -X PUT http://h/api/v1/credentials/warehouse -H 'Content-Type: application/json' --data-binary @body.json -H "Authorization: Bearer $TOKEN"`,
  )
})

test('a new value says nothing of what stays as it was', () => {
  const act = storesCredential({ name: 'mailer', kind: '', description: '', tags: [], value: 'a-token' })
  expect(act.given).toEqual({ name: 'mailer', value: 'a-token' })
  expect(act.cli).toEqual(['noetl-stream', 'credential', 'set', 'mailer', '--file', 'value.txt'])
})

test('a value has the members that are filled in, each once', () => {
  const members = [{ key: 'host', text: 'db' }, { key: 'password', text: 'four' }, { key: 'port', text: '' }]
  expect(valueOf({ members })).toEqual({ value: { host: 'db', password: 'four' } })
  expect(valueOf({ members: [...members, { key: 'host', text: 'x' }] })).toEqual({ fault: 'There is another host.' })
  expect(valueOf({ members: [{ key: '', text: 'x' }] })).toEqual({ fault: 'Enter a name for each value.' })
  expect(valueOf(typedFor('postgres'))).toEqual({ fault: 'Enter a value.' })
})

test('a text that begins like a JSON object is one, and what is wrong with it shows nothing of it', () => {
  expect(valueOf({ text: '{"token": "abcd"}' })).toEqual({ value: { token: 'abcd' } })
  expect(valueOf({ text: 'postgresql://ann:pw@db/x' })).toEqual({ value: 'postgresql://ann:pw@db/x' })
  expect(valueOf({ text: ' ' })).toEqual({ fault: 'Enter a value.' })
  expect(JSON.stringify(valueOf({ text: '{"token": hidden-word' }))).not.toContain('hidden')
  expect(valueOf({ text: '{"id": 12345678901234567890}' })).toHaveProperty('fault')
})

test('names and addresses are shown as they are typed, whatever else is not', () => {
  expect(['host', 'user', 'password', 'client_secret', 'url', 'a_name_of_ones_own'].filter(isOpen)).toEqual(['host', 'user'])
  expect([typedFor('generic'), typedFor('constructor'), typedFor('nats')].map(isEmpty)).toEqual([true, true, true])
  expect(isEmpty({ members: [{ key: 'host', text: 'db' }] })).toBe(false)
})
