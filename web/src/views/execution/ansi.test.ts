import { expect, test } from 'vitest'
import { cut, painted, plain } from './ansi'

const ESC = '\x1b'

test('a line without colours is one part', () => {
  expect(painted('all well')).toEqual([{ text: 'all well', look: '' }])
  expect(painted('')).toEqual([])
})

test('colours and weights become looks, and end', () => {
  expect(painted(`${ESC}[1;31mfailed${ESC}[22m at${ESC}[0m 7`)).toEqual([
    { text: 'failed', look: 'bold fg1' },
    { text: ' at', look: 'fg1' },
    { text: ' 7', look: '' },
  ])
  expect(painted(`${ESC}[92;44mok${ESC}[39;49m.`)).toEqual([{ text: 'ok', look: 'fg2 bg4' }, { text: '.', look: '' }])
})

test.each([
  ['38;5;9', 'fg1'],
  ['38;5;196', 'fg1'],
  ['38;5;46', 'fg2'],
  ['38;2;10;20;250', 'fg4'],
  ['48:2:250:250:0', 'bg3'],
  ['38;5;250;1', 'fg7 bold'],
])('the colour %s is the nearest of eight: %s', (code, look) => expect(painted(`${ESC}[${code}mx`)).toEqual([{ text: 'x', look }]))

test.each([
  [`${ESC}]8;;javascript:alert(1)${ESC}\\link${ESC}]8;;${ESC}\\`, 'link'],
  [`${ESC}]0;title\x07text`, 'text'],
  [`${ESC}[2J${ESC}[1;1Hgone${ESC}[K`, 'gone'],
  [`a\x00b\x08c${ESC}`, 'abc'],
  [`${ESC}[31`, ''],
  ['10 %\r20 %\r', '20 %'],
  ['tab\there', 'tab\there'],
  [`${ESC}[1;31m<img src=x>`, '<img src=x>'],
])('of %j nothing is obeyed, and %j is shown', (line, shown) => {
  expect(plain(line)).toBe(shown)
  expect(painted(line).map((part) => part.text).join('')).toBe(shown)
})

test('looks have no word of the text in them', () => {
  const looks = painted(`${ESC}[31;evil;99999;-1;38;5;xm a`).flatMap(({ look }) => look.split(' '))
  expect(looks.every((one) => /^(?:[fb]g[0-7]|bold|faint|slanted|underlined|)$/.test(one))).toBe(true)
})

test('a line that wraps keeps its looks', () => {
  const parts = painted(`ab${ESC}[31mcdef${ESC}[0mgh`)
  expect([cut(parts, 0, 4), cut(parts, 4, 8)]).toEqual([
    [{ text: 'ab', look: '' }, { text: 'cd', look: 'fg1' }],
    [{ text: 'ef', look: 'fg1' }, { text: 'gh', look: '' }],
  ])
})
