import { expect, test } from 'vitest'
import { linesOf, rowsOf } from './unified'

const DIFF = `--- a@1
+++ a@2
@@ -2,4 +2,4 @@
 keep
-old 1
-old 2
+new 1
 keep too
@@ -20,1 +20,2 @@
 end
+--- more
\\ No newline at end of file
`

test('lines have their numbers on both sides', () => {
  expect(linesOf(DIFF).map(({ mark, old, new: now, text }) => [mark, old, now, text])).toEqual([
    ['gap', null, null, ''],
    ['same', 2, 2, 'keep'],
    ['removed', 3, null, 'old 1'],
    ['removed', 4, null, 'old 2'],
    ['added', null, 3, 'new 1'],
    ['same', 5, 4, 'keep too'],
    ['gap', null, null, ''],
    ['same', 20, 20, 'end'],
    ['added', null, 21, '--- more'],
    ['same', null, null, 'No newline at end of file'],
  ])
  expect(linesOf('')).toEqual([])
})

test('side by side, what was removed stands beside what was added in its place', () => {
  const rows = rowsOf(linesOf(DIFF)).map(([one, other]) => [one?.text ?? null, other?.text ?? null])
  expect(rows.slice(1, 5)).toEqual([['keep', 'keep'], ['old 1', 'new 1'], ['old 2', null], ['keep too', 'keep too']])
})
