import { expect, test } from 'vitest'
import type { Net } from './layout'
import { placeInLines } from './place'

const row = (count: number): Net => ({
  steps: Array.from({ length: count }, (_, n) => `step_${n}`),
  arcs: Array.from({ length: count - 1 }, (_, n) => ({ from: `step_${n}`, to: `step_${n + 1}`, when: null, index: 0 })),
})

test('a long row of steps is broken into lines, in the order in which they follow', () => {
  const { steps, arcs, width, height } = placeInLines(row(200))
  expect(width / height).toBeGreaterThan(3)
  expect(width / height).toBeLessThan(10)
  steps.forEach((one, n) => {
    expect(one.x).toBeGreaterThanOrEqual(0)
    expect(one.x + one.width).toBeLessThanOrEqual(width)
    expect(one.y + one.height).toBeLessThanOrEqual(height)
    const before = steps[n - 1]
    if (before) expect(one.y > before.y || one.x > before.x + before.width).toBe(true)
  })
  arcs.forEach((arc, n) => {
    expect(arc.points[0]?.x).toBeCloseTo((steps[n]?.x ?? 0) + (steps[n]?.width ?? 0))
    expect(arc.points.at(-1)?.x).toBeCloseTo(steps[n + 1]?.x ?? 0)
    expect(arc.points.at(-1)?.y).toBeCloseTo((steps[n + 1]?.y ?? 0) + 16)
  })
})

test('what has room in one line stays in one', () => {
  const { steps } = placeInLines(row(9))
  expect(new Set(steps.map((one) => one.y)).size).toBe(1)
  const { width, height } = placeInLines({ ...row(60), down: true })
  expect(height).toBeGreaterThan(10 * width)
})
