import { expect, test } from 'vitest'
import { rangeOf } from './places'

const TEXT = 'a: 1\n"ö😀": bad value\n  kind: nop\n'
const part = (line: number, column: number): string => {
  const { from, to } = rangeOf(TEXT, { line, column })
  return TEXT.slice(from, to)
}

test('a diagnostic is about the word at its place, whatever letters stand before it', () => {
  expect([part(1, 1), part(2, 7), part(3, 9), part(2, 1)]).toEqual(['a', 'bad', 'nop', '"ö😀"'])
})

test('a place behind the end of its line or of the text is still in the text', () => {
  for (const [line, column] of [[1, 99], [99, 1], [4, 1]] as const) {
    const { from, to } = rangeOf(TEXT, { line, column })
    expect(from).toBeLessThanOrEqual(to)
    expect(to).toBeLessThanOrEqual(TEXT.length)
  }
})
