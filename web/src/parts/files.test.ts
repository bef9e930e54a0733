import { expect, test } from 'vitest'
import { aboutOf, downloadOf, fileOf, imageType, MOST_TEXT, nameOf, previewOf } from './files'
import { columnsOf, kindOf } from './json'

const FILE = { key: 'e/c/1.1.n/0/parts-1', size: 1234, checksum: 'sha256:00', seal: 'a-_=', name: 'a b.csv', media_type: 'text/csv' }

test('a reference is shown as a file, also in a list, and what lacks a part of it is not', () => {
  expect([kindOf(FILE), kindOf([FILE]), kindOf({ ...FILE, seal: null }), kindOf({ ...FILE, key: 'e/c/1.1.n/0' })]).toEqual([
    'file', 'list', 'object', 'object',
  ])
  expect(columnsOf([FILE])).toEqual([])
  expect([fileOf('text'), fileOf(null)]).toEqual([null, null])
})

test('people read its name and size, and of a table its columns and rows', () => {
  expect([nameOf(FILE), aboutOf(FILE)]).toEqual(['a b.csv', 'text/csv, 1,234 bytes'])
  const table = { ...FILE, name: '', columns: [{}, {}], rows: 5000 }
  expect([nameOf(table), aboutOf(table)]).toEqual(['table.parquet', '2 columns, 5,000 rows, 1,234 bytes'])
})

test('it is downloaded of the execution that shows it', () => {
  expect(downloadOf(FILE, 'x/1')).toBe(
    '/api/v1/executions/x%2F1/file?key=e%2Fc%2F1.1.n%2F0%2Fparts-1&size=1234&checksum=sha256%3A00&seal=a-_%3D&name=a+b.csv',
  )
})

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text)

test('what a file is says its beginning, not its name, and a document is a text', () => {
  const png = Uint8Array.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a, 1])
  expect(previewOf(png, png.length)).toEqual({ kind: 'image', url: 'data:image/png;base64,iVBORw0KGgoB' })
  expect(previewOf(png, 10_000_000).kind).toBe('other')
  expect(imageType(bytes('RIFF....WEBP'))).toBe('image/webp')
  for (const document of ['<svg onload="x()"/>', '<html><script>x()</script>']) {
    expect(previewOf(bytes(document), document.length)).toEqual({ kind: 'text', text: document, isCut: false })
  }
  expect(previewOf(bytes('{"a": 1}'), 8)).toEqual({ kind: 'json', value: { a: 1 } })
  expect(previewOf(bytes('{"a": 1'), 7)).toEqual({ kind: 'text', text: '{"a": 1', isCut: false })
  expect(previewOf(Uint8Array.from([0xff, 0xfe, 1]), 3).kind).toBe('other')
  expect(previewOf(bytes('a\0b'), 3).kind).toBe('other')
})

test('a long text is cut, also within a letter', () => {
  const found = previewOf(bytes('é'.repeat(MOST_TEXT)).subarray(0, MOST_TEXT + 1), 2 * MOST_TEXT)
  expect(found).toEqual({ kind: 'text', text: 'é'.repeat(MOST_TEXT / 2), isCut: true })
  const shifted = previewOf(bytes(`x${'é'.repeat(MOST_TEXT)}`).subarray(0, MOST_TEXT), 2 * MOST_TEXT)
  expect(shifted.kind === 'text' && shifted.text.endsWith('é')).toBe(true)
})
