import { expect, test } from 'vitest'
import { linksIn } from './links'

const ID = '01977420-dc0a-7de5-960f-d987f6cf7000'

test('ids of executions and addresses of the web are links, and nothing else is', () => {
  expect(linksIn(`execution ${ID} (failed): see https://a.example/b?c=1&d=(2), or ask.`)).toEqual([
    { text: 'execution ' },
    { text: ID, href: `/executions/${ID}` },
    { text: ' (failed): see ' },
    { text: 'https://a.example/b?c=1&d=(2', href: 'https://a.example/b?c=1&d=(2' },
    { text: '), or ask.' },
  ])
  for (const text of ['javascript:alert(1)', 'data:text/html,x', '9b2c-not-an-id', 'ftp://a.example', '']) {
    expect(linksIn(text).some((one) => one.href !== undefined)).toBe(false)
  }
})

test('an address ends where markup begins, and the pieces are the text', () => {
  const text = `<a href="https://a.example/x">it</a> ${ID}${ID} https://b.example`
  const pieces = linksIn(text)
  expect(pieces.map((one) => one.text).join('')).toBe(text)
  expect(pieces.flatMap((one) => one.href ?? [])).toEqual(['https://a.example/x', 'https://b.example'])
})
