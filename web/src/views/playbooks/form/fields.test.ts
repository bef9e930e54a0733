import { expect, test } from 'vitest'
import { formOf, isAbout, type FormField, type Part } from './fields'

const orNull = (type: string) => ({ anyOf: [{ type }, { type: 'null' }] })
const SCHEMA = {
  properties: {
    apiVersion: { const: 'noetl.io/v2' },
    metadata: { properties: { path: { type: 'string' }, tags: orNull('array') }, required: ['path'] },
    spec: {
      properties: {
        on: {
          oneOf: [{ required: ['webhook'] }, { required: ['moon'] }],
          properties: {
            webhook: { description: 'Requests.', properties: { verify: { enum: ['token', 'none'] } }, required: ['verify'] },
            moon: { description: 'Phases of the moon.', properties: { phase: { description: 'Which.', enum: ['full', null] }, is_new: orNull('boolean') } },
          },
        },
        zone: { enum: Array.from({ length: 30 }, (_, index) => `Z${index}`) },
        workload: { type: ['object', 'null'] },
        most: orNull('integer'),
        rate: { properties: { per_minute: { type: 'integer' } }, required: ['per_minute'] },
      },
    },
  },
}

const fieldsIn = (parts: readonly Part[]): FormField[] => parts.flatMap((one) => (one.is === 'field' ? [one] : one.ways.flatMap((way) => fieldsIn(way.parts))))

test('a form has a field for each value of the schema, also for one that nobody thought of', () => {
  const said = fieldsIn(formOf(SCHEMA)).map(({ path, label, kind, isRequired }) => [path.join('.'), label, kind, isRequired])
  expect(said).toEqual([
    ['metadata.path', 'Path', 'text', true],
    ['metadata.tags', 'Tags', 'lines', false],
    ['spec.on.webhook.verify', 'Senders are known by', 'choice', true],
    ['spec.on.moon.phase', 'Phase', 'choice', false],
    ['spec.on.moon.is_new', 'Is new', 'yes', false],
    ['spec.zone', 'Zone', 'text', false],
    ['spec.workload', 'Workload', 'JSON', false],
    ['spec.most', 'Most', 'number', false],
    ['spec.rate.per_minute', 'Starts in a minute at most', 'number', false],
  ])
})

test('of keys that exclude each other one is chosen, and begins with what it requires', () => {
  const choice = formOf(SCHEMA).find((one) => one.is === 'choice')
  expect(choice?.ways.map(({ key, words, begins }) => [key, words, begins])).toEqual([
    ['webhook', 'requests', { verify: 'token' }],
    ['moon', 'phases of the moon', {}],
  ])
})

test('what the server says stands at the field that it is about', () => {
  const field = { path: ['spec', 'cron'] }
  expect(isAbout({ pointer: '/spec/cron/1', message: 'bad minute' }, field)).toBe(true)
  expect(isAbout({ pointer: '/spec', message: '`spec` needs `cron`, `every` or `at`' }, field)).toBe(true)
  expect(isAbout({ pointer: '/spec/cronos', message: '' }, field)).toBe(false)
  expect(isAbout({ pointer: '/spec', message: '`spec` needs `playbook`' }, field)).toBe(false)
})
