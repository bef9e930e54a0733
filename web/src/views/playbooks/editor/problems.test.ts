import { expect, test } from 'vitest'
import type { Diagnostic } from 'noetl-stream-client'
import { problemsOf } from './problems'

const nodes = [
  { step: 'start', line: 4 },
  { step: 'end', line: 9 },
]
const problem = (line: number, severity: 'error' | 'warning', pointer = '/workflow/0'): Diagnostic =>
  ({ line, severity, pointer, message: `at ${line}` }) as Diagnostic

test('a problem belongs to the step in whose lines it is', () => {
  const { steps, words } = problemsOf(nodes, [problem(4, 'warning'), problem(8, 'error'), problem(8, 'warning'), problem(20, 'warning')])
  expect([...steps]).toEqual([['start', 'error'], ['end', 'warning']])
  expect(words.get('start')).toEqual(['warning: at 4', 'error: at 8', 'warning: at 8'])
})

test('what is not of the workflow is of no step', () => {
  const { steps } = problemsOf(nodes, [problem(2, 'error'), problem(30, 'error', '/workbook/tasks/a'), problem(1, 'error', '')])
  expect(steps.size).toBe(0)
})
