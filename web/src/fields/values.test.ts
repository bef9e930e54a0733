import { expect, test } from 'vitest'
import { changesOf, fieldOf, isExact, mappingOf, read, retyped, valueFault, type Field } from './values'

test('a value is typed as what it is', () => {
  expect(fieldOf('a', true)).toMatchObject({ kind: 'yes or no', text: 'true' })
  expect(fieldOf('a', 1.5)).toMatchObject({ kind: 'number', text: '1.5' })
  expect(fieldOf('a', '42')).toMatchObject({ kind: 'text', text: '42' })
  expect(fieldOf('a', null)).toMatchObject({ kind: 'JSON', text: 'null' })
  expect(fieldOf('a', undefined)).toMatchObject({ kind: 'text', text: '' })
})

test('what was typed is the value again', () => {
  for (const value of [true, 0, -1.5e3, '', '42', ' x ', null, [1, { a: 'ü' }]]) {
    const { text, kind } = fieldOf('a', value)
    expect(read(text, kind)).toEqual({ value })
  }
})

test('what is wrong is said before it is sent', () => {
  expect(read('1,5', 'number')).toEqual({ fault: 'This is not a number.' })
  expect(read('', 'yes or no')).toEqual({ fault: 'Choose one.' })
  expect(read('{a: 1}', 'JSON')).toHaveProperty('fault')
  expect(mappingOf([fieldOf('a', 1), fieldOf('a', 2)])).toBeNull()
  expect(mappingOf([fieldOf('', 1)])).toBeNull()
})

test('a number that a browser would round is refused', () => {
  expect(read('12345678901234567890', 'number')).toHaveProperty('fault')
  expect(read('{"id": [9007199254740993]}', 'JSON')).toHaveProperty('fault')
  expect(read('1e999', 'number')).toHaveProperty('fault')
  expect(isExact({ a: [1, 2 ** 53 - 1, 0.1] })).toBe(true)
})

test('another kind keeps what was typed', () => {
  expect(retyped('42', 'number', 'text')).toBe('42')
  expect(retyped('ada', 'text', 'JSON')).toBe('"ada"')
  expect(retyped('"ada"', 'JSON', 'text')).toBe('ada')
  expect(retyped('[1', 'JSON', 'text')).toBe('[1')
  expect(retyped('true', 'JSON', 'yes or no')).toBe('true')
  expect(retyped('maybe', 'text', 'yes or no')).toBe('')
})

test('what may be left out is, and what is required is not', () => {
  const by = fieldOf('by', undefined, { empty: 'left out' })
  const needed = fieldOf('by', undefined, { empty: 'wrong' })
  expect(mappingOf([by, fieldOf('go', true)])).toEqual({ go: true })
  expect(mappingOf([needed])).toBeNull()
  expect(valueFault(needed)).toBe('Enter a value.')
  expect(mappingOf([fieldOf('by', undefined)])).toEqual({ by: '' })
})

test('only what was changed differs from before', () => {
  const before = [fieldOf('city', 'Rome'), fieldOf('rows', 10), fieldOf('tags', ['a'])]
  const [city, rows, tags] = before as [Field, Field, Field]
  expect(changesOf(before, before)).toEqual({})
  expect(changesOf([{ ...city, text: '' }, { ...rows, text: '2.5' }, tags], before)).toEqual({ city: '', rows: 2.5 })
  expect(changesOf([city, { ...rows, kind: 'text' }, tags], before)).toEqual({ rows: '10' })
  expect(changesOf([city, { ...rows, text: 'ten' }, tags], before)).toBeNull()
})

test('what is to be given is missed although nothing was changed', () => {
  const order = fieldOf('order', undefined, { empty: 'wrong' })
  expect(changesOf([order], [order])).toBeNull()
  expect(changesOf([{ ...order, text: '1001' }], [order])).toEqual({ order: '1001' })
})

test('a default that a browser has rounded is not sent', () => {
  const id = fieldOf('id', 2 ** 53 + 2)
  expect(changesOf([id], [id])).toEqual({})
})

test('a key that objects inherit is a key like any other', () => {
  expect(Object.entries(mappingOf([fieldOf('__proto__', 1)]) ?? {})).toEqual([['__proto__', 1]])
})
