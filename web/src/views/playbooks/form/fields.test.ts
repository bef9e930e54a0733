import { expect, test } from 'vitest'
import { template } from '../editor/draft'
import { valueAt } from './edits'
import { formOf, isAbout } from './fields'

test.each(['Schedule', 'Trigger'] as const)('the form of a new %s has its required values', (kind) => {
  const form = formOf(kind)
  const text = template(kind)
  const ways = form?.ways.filter((way) => valueAt(text, [...form.below, way.key]) !== undefined) ?? []
  expect(ways).toHaveLength(1)
  for (const field of [...(form?.head ?? []), ...(ways[0]?.fields ?? [])]) {
    if (field.isRequired) expect(valueAt(text, field.path), field.label).toBeTruthy()
  }
})

test('other documents have no form', () => expect([formOf('Playbook'), formOf('Schema')]).toEqual([null, null]))

test('what the server says stands at the field that it is about', () => {
  const field = { path: ['spec', 'cron'] }
  expect(isAbout({ pointer: '/spec/cron/1', message: 'bad minute' }, field)).toBe(true)
  expect(isAbout({ pointer: '/spec', message: '`spec` needs `cron`, `every` or `at`' }, field)).toBe(true)
  expect(isAbout({ pointer: '/spec/cronos', message: '' }, field)).toBe(false)
  expect(isAbout({ pointer: '/spec', message: '`spec` needs `playbook`' }, field)).toBe(false)
})
