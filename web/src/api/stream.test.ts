import { expect, test } from 'vitest'
import { parsed } from './stream'

test('events come in parts, and what is not whole waits for the rest', () => {
  const { events, rest } = parsed('retry: 2000\n\n: nothing new\n\nid: 7\nevent: line\ndata: {"a":1}\n\nid: 8\n\nid: 9\nda')
  expect(events).toEqual([
    { id: '7', name: 'line', data: '{"a":1}' },
    { id: '8', name: '', data: '' },
  ])
  expect(rest).toBe('id: 9\nda')
})
