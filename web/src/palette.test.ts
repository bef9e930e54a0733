import { expect, test } from 'vitest'
import { executionIn, matching, SCREENS } from './palette'

const commands = SCREENS.map(({ name }) => ({ name, note: '', run: () => undefined }))
const found = (text: string): string[] => matching(commands, text).map((one) => one.name)

test('words are found anywhere in a name, in any case and order, names that begin so first', () => {
  expect(found('EXEC')).toEqual(['Executions', 'Failed executions'])
  expect(found('ions fail')).toEqual(['Failed executions'])
  expect(found('')).toHaveLength(SCREENS.length)
  expect(found('nothing')).toEqual([])
})

test('an id leads to its execution', () => {
  const id = '01a2074b-b33a-70da-88b1-2519d8b25b4e'
  expect(executionIn(` ${id} `)).toBe(id)
  expect(executionIn('01a2074b')).toBeNull()
})
