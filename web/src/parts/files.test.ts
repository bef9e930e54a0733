import { expect, test } from 'vitest'
import { aboutOf, downloadOf, fileOf, nameOf } from './files'
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
