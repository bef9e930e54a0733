import { expect, test } from 'vitest'
import { kindIn, template } from './draft'

test.each(['Playbook', 'Schedule', 'Trigger'] as const)('a new %s begins with a text of its kind', (kind) => {
  expect(kindIn(template(kind))).toBe(kind)
})

test('a text that does not say what it is, is taken for a playbook', () => {
  expect(kindIn('workflow: []\n# kind: Trigger')).toBe('Playbook')
  expect(kindIn('kind:  Schema\n')).toBe('Schema')
})
