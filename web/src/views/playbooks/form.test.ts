import { expect, test } from 'vitest'
import { curlLine, cliLine, starts } from '../../acts'
import { INEXACT } from '../../fields/values'
import { fieldsOf, MORE, read } from './form'

const WORKLOAD = { city: 'Rome', note: 'a\nb', rows: 10, dry: false, tags: ['a'], limits: { most: 1 }, since: null }
const FIELDS = fieldsOf(WORKLOAD)

test('each key of the workload has a field of the type of its default', () => {
  expect(FIELDS.map(({ key, type }) => `${key}: ${type}`)).toEqual([
    'city: text', 'note: lines', 'rows: number', 'dry: boolean', 'tags: list', 'limits: object', 'since: any',
  ])
  expect(FIELDS.map((one) => one.initial).slice(2)).toEqual(['10', 'false', '[\n  "a"\n]', '{\n  "most": 1\n}', ''])
})

test('only what differs from the defaults is sent', () => {
  expect(read(FIELDS, {}, '')).toEqual({ workload: {}, errors: {} })
  const texts = { city: '', rows: '2.5', dry: 'true', tags: '[]', limits: '{"most": 2}', since: '2026-01-01' }
  expect(read(FIELDS, texts, '').workload).toEqual({ city: '', rows: 2.5, dry: true, tags: [], limits: { most: 2 }, since: '2026-01-01' })
  expect(read(FIELDS, { since: '7' }, '').workload).toEqual({ since: 7 })
})

test('what the playbook does not declare is JSON, over the fields', () => {
  expect(read(FIELDS, { city: 'Oslo', rows: '1' }, '{"city": "Bern", "x": [1]}').workload).toEqual({ city: 'Bern', rows: 1, x: [1] })
})

test('what is no value of its type is said at its field', () => {
  const { errors } = read(FIELDS, { rows: 'ten', tags: '{}', limits: '{' }, '[1]')
  expect(Object.keys(errors)).toEqual(['rows', 'tags', 'limits', MORE])
  expect(errors['rows']).toBe('must be a number')
  expect(errors['tags']).toBe('must be a list, as ["a", "b"]')
})

test('a number that a browser would round is not sent', () => {
  const { workload, errors } = read(FIELDS, { rows: '9007199254740993', limits: '{"most": 9007199254740993}' }, '')
  expect([workload, errors]).toEqual([{}, { rows: INEXACT, limits: INEXACT }])
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
})
