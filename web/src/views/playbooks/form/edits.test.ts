import { expect, test } from 'vitest'
import { edited, valueAt, type Path } from './edits'

const TEXT = `# a schedule
kind: Schedule
metadata: {name: example, path: examples/nightly}
spec:
  playbook: examples/example # what runs
  workload: {greeting: good night, count: 2, note: "say \\"hi\\""}
  cron:
    - "30 2 * * *"
    - 0 4 * * SAT
  window:
    from: 2026-11-01
  paused: true
`

function put(text: string, path: Path, value: unknown): string {
  const edit = edited(text, path, value)
  return edit === null ? text : text.slice(0, edit.from) + edit.insert + text.slice(edit.to)
}

test('a form reads what the text says', () => {
  expect(valueAt(TEXT, ['metadata', 'path'])).toBe('examples/nightly')
  expect(valueAt(TEXT, ['spec', 'cron'])).toEqual(['30 2 * * *', '0 4 * * SAT'])
  expect(valueAt(TEXT, ['spec', 'workload'])).toEqual({ greeting: 'good night', count: 2, note: 'say "hi"' })
  expect(valueAt(TEXT, ['spec', 'paused'])).toBe(true)
  expect(valueAt(TEXT, ['spec', 'jitter'])).toBeUndefined()
  expect(valueAt('a: 0123\nb: 9007199254740993\nc:\n', ['a'])).toBe('0123')
  expect(valueAt('b: 9007199254740993\n', ['b'])).toBe('9007199254740993')
})

test.each([
  [['spec', 'playbook'], 'team/other', 'playbook: team/other # what runs'],
  [['spec', 'cron'], ['0 1 * * *'], 'cron: ["0 1 * * *"]\n  window:'],
  [['spec', 'jitter'], '5m', 'paused: true\n  jitter: 5m\n'],
  [['spec', 'window', 'until'], '2026-12-24', 'from: 2026-11-01\n    until: "2026-12-24"\n  paused'],
  [['spec', 'rate', 'burst'], 3, 'paused: true\n  rate: {burst: 3}\n'],
  [['metadata', 'path'], 'a b', '{name: example, path: "a b"}'],
  [['metadata', 'version'], 'yes', 'path: examples/nightly, version: "yes"}'],
  [['metadata', 'name'], undefined, 'metadata: {path: examples/nightly}'],
  [['metadata', 'path'], undefined, 'metadata: {name: example}'],
  [['spec', 'cron'], undefined, 'note: "say \\"hi\\""}\n  window:'],
  [['spec', 'workload'], { a: [1, null, { 'b c': '{{ x }}' }] }, 'workload: {a: [1, null, {"b c": "{{ x }}"}]}'],
])('%j becomes %j in the text, and all else stays', (path, value, expected) => {
  const text = put(TEXT, path, value)
  expect(text).toContain(expected)
  expect(text).toContain('# a schedule\nkind: Schedule')
  expect(valueAt(text, path)).toEqual(value)
})

test('what is not there is not taken away, and nothing is put where no mapping is', () => {
  expect(edited(TEXT, ['spec', 'jitter'], undefined)).toBeNull()
  expect(edited('- a\n', ['spec'], 1)).toBeNull()
  expect(put('spec:\n', ['spec', 'on', 'webhook'], 1)).toBe('spec: {on: {webhook: 1}}\n')
  expect(put('spec: {}\n', ['spec', 'every'], '15m')).toBe('spec: {every: 15m}\n')
})

test.each(['', 'a: "', "it's", '#x', '- a', 'a: b', '{{ event.json }}', ' x ', 'ü\n', '2026-11-05T09:00', '1e3'])('the text %j is the same when it is read again', (value) => {
  expect(valueAt(put(TEXT, ['spec', 'key'], value), ['spec', 'key'])).toBe(value)
  expect(valueAt(put(TEXT, ['metadata', 'labels'], { [value || 'a']: value }), ['metadata', 'labels'])).toEqual({ [value || 'a']: value })
})
